-- Many calls of one job; what they share is given once. The rows come in the order of their keys, so that two bulk
-- enqueues with the same keys wait for each other instead of deadlocking.
INSERT INTO django_reliable_jobs_job (
    name, queue, args, kwargs, status, reason, priority, run_at, expires_at, attempts, max_attempts, losses, timeout,
    fencing_token, unique_key, unique_until_start, scope, idempotency_key, created_at)
SELECT
    %(name)s, %(queue)s, row.args::jsonb, row.kwargs::jsonb, 'QUEUED', '', %(priority)s,
    coalesce(%(run_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s::float8)),
    coalesce(%(expires_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(expires_in)s::float8)),
    0, %(max_attempts)s::int, 0, %(timeout)s::float8, 0, row.unique_key, %(unique_until_start)s, %(scope)s,
    row.idempotency_key, statement_timestamp()
FROM unnest(%(args)s::text[], %(kwargs)s::text[], %(unique_keys)s::text[], %(idempotency_keys)s::text[])
     AS row (args, kwargs, unique_key, idempotency_key)
ON CONFLICT DO NOTHING
RETURNING id, unique_key, idempotency_key
