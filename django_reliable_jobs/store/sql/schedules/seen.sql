-- Notes that workers with these versions are alive, whichever of them is the current one, and since when without a break. A few
-- seconds are no news.
UPDATE django_reliable_jobs_schedulerelease AS r
   SET seen_since = CASE WHEN r.seen_since IS NULL
                           OR r.seen_at < statement_timestamp() - make_interval(secs => %(break)s::float8)
                         THEN statement_timestamp() ELSE r.seen_since END,
       seen_at = statement_timestamp()
 WHERE id IN (SELECT r.id
                FROM django_reliable_jobs_schedulerelease AS r
                JOIN unnest(%(sources)s::text[], %(fingerprints)s::text[]) AS m (source, fingerprint)
                  ON r.source = m.source AND r.fingerprint = m.fingerprint
               WHERE r.seen_at < statement_timestamp() - interval '3 seconds' OR r.seen_since IS NULL
                 FOR NO KEY UPDATE OF r SKIP LOCKED)
