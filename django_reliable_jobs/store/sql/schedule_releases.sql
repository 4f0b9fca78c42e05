-- Where this process' versions of the apps stand: is it the current one, has it ever been, and how many seconds ago was
-- the current one last seen. Apps that never had a schedule do not come back.
SELECT m.source, m.fingerprint IS NOT DISTINCT FROM latest.fingerprint, known.id IS NOT NULL,
       (extract(epoch FROM statement_timestamp()) - extract(epoch FROM latest.seen_at))::float8
  FROM unnest(%(sources)s::text[], %(fingerprints)s::text[], %(defined)s::bool[]) AS m (source, fingerprint, defined)
  LEFT JOIN LATERAL (
      SELECT r.fingerprint, r.seen_at
        FROM django_reliable_jobs_schedulerelease AS r
       WHERE r.source = m.source
       ORDER BY r.activated_at DESC
       LIMIT 1) AS latest ON true
  LEFT JOIN django_reliable_jobs_schedulerelease AS known ON known.source = m.source AND known.fingerprint = m.fingerprint
 WHERE m.defined OR latest.fingerprint IS NOT NULL
    OR EXISTS (SELECT FROM django_reliable_jobs_cronschedule AS s WHERE s.source = m.source AND s.source <> '')
