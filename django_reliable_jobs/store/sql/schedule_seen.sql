-- Notes that workers with these current versions are alive.
UPDATE django_reliable_jobs_schedulerelease
   SET seen_at = clock_timestamp()
 WHERE id IN (SELECT r.id
                FROM django_reliable_jobs_schedulerelease AS r
                JOIN unnest(%(sources)s::text[], %(fingerprints)s::text[]) AS m (source, fingerprint)
                  ON r.source = m.source AND r.fingerprint = m.fingerprint
                 FOR NO KEY UPDATE OF r SKIP LOCKED)
