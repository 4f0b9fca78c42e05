-- Notes that workers with these current versions are alive.
UPDATE django_reliable_jobs_schedulerelease AS r
   SET seen_at = clock_timestamp()
  FROM unnest(%(sources)s::text[], %(fingerprints)s::text[]) AS m (source, fingerprint)
 WHERE r.source = m.source AND r.fingerprint = m.fingerprint
