-- One job. Nothing comes back when an unfinished one of its scope holds the unique key, or any the idempotency key: without a
-- conflict target both indexes are honoured, and the caller's transaction stays usable. A rival's uncommitted row with
-- the same key is waited for, so that its rollback cannot make this job vanish. A job that is due at once has its `run_at` not
-- told twice.
INSERT INTO django_reliable_jobs_job (
    name, queue, args, kwargs, status, reason, priority, run_at, expires_at, attempts, max_attempts, losses, timeout,
    fencing_token, unique_key, unique_until_start, scope, idempotency_key, scheduled_for, created_at)
VALUES (
    %(name)s, %(queue)s, %(args)s::jsonb, %(kwargs)s::jsonb, 'QUEUED', '', %(priority)s,
    coalesce(%(run_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s::float8)),
    coalesce(%(expires_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(expires_in)s::float8)),
    0, %(max_attempts)s::int, 0, %(timeout)s::float8, 0, %(unique_key)s, %(unique_until_start)s, %(scope)s,
    %(idempotency_key)s, %(scheduled_for)s::timestamptz, statement_timestamp())
ON CONFLICT DO NOTHING
RETURNING id, nullif(run_at, created_at) AT TIME ZONE 'UTC', expires_at AT TIME ZONE 'UTC', created_at AT TIME ZONE 'UTC'
