-- Debounce: new arguments and new times for the waiting job that holds the key. A separate UPDATE on purpose: an
-- ON CONFLICT DO UPDATE would lock a RUNNING row even where its WHERE is false, and so hold up that job's settle.
UPDATE django_reliable_jobs_job
   SET args = %(args)s::jsonb,
       kwargs = %(kwargs)s::jsonb,
       run_at = coalesce(%(run_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s::float8)),
       expires_at = coalesce(%(expires_at)s::timestamptz,
                             statement_timestamp() + make_interval(secs => %(expires_in)s::float8))
 WHERE unique_key = %(unique_key)s AND status IN ('QUEUED', 'FAILED')
RETURNING id
