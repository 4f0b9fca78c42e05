-- Where this process' versions of the apps stand: is it the current one, has it ever been, how many seconds ago was the
-- current one last seen, and for how many seconds have workers with this one been seen without a break.
SELECT m.source, m.fingerprint IS NOT DISTINCT FROM latest.fingerprint, known.id IS NOT NULL,
       (extract(epoch FROM statement_timestamp()) - extract(epoch FROM latest.seen_at))::float8,
       CASE WHEN known.seen_at >= statement_timestamp() - make_interval(secs => %(break)s::float8)
            THEN coalesce(extract(epoch FROM statement_timestamp() - known.seen_since), 0) ELSE 0 END::float8
  FROM unnest(%(sources)s::text[], %(fingerprints)s::text[]) AS m (source, fingerprint)
  LEFT JOIN LATERAL (
      SELECT r.fingerprint, r.seen_at
        FROM django_reliable_jobs_schedulerelease AS r
       WHERE r.source = m.source
       ORDER BY r.activated_at DESC
       LIMIT 1) AS latest ON true
  LEFT JOIN django_reliable_jobs_schedulerelease AS known ON known.source = m.source AND known.fingerprint = m.fingerprint
