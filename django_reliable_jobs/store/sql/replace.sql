-- Debounce: the waiting job that holds the key becomes the new call, as if it were new: arguments and times, queue, priority
-- and limits, all attempts and no begin, and none of the progress of the call before. It keeps its id, what it is known by
-- (the scope of its keys; an idempotency key unless the call brings one), its fire time and the record of its attempts.
-- A separate UPDATE on purpose: an ON CONFLICT DO UPDATE would lock a RUNNING row even where its WHERE is false, and so hold
-- up that job's settle. The token of the checkpoint rises, so that an attempt of the old call that is still about is refused.
WITH replaced AS (
    UPDATE django_reliable_jobs_job AS job
       SET name = %(name)s,
           scope = coalesce(job.scope, job.name),
           queue = %(queue)s,
           args = %(args)s::jsonb,
           kwargs = %(kwargs)s::jsonb,
           status = 'QUEUED',
           reason = '',
           priority = %(priority)s,
           run_at = coalesce(%(run_at)s::timestamptz, statement_timestamp() + make_interval(secs => %(delay)s::float8)),
           expires_at = coalesce(%(expires_at)s::timestamptz,
                                 statement_timestamp() + make_interval(secs => %(expires_in)s::float8)),
           attempts = 0,
           max_attempts = %(max_attempts)s::int,
           losses = 0,
           infrastructure_failures = 0,
           timeout = %(timeout)s::float8,
           unique_until_start = %(unique_until_start)s,
           idempotency_key = coalesce(%(idempotency_key)s, job.idempotency_key),
           unknown_since = NULL,
           progress = NULL,
           first_started_at = NULL
     WHERE job.id = %(holder)s AND job.unique_key = %(unique_key)s AND job.status IN ('QUEUED', 'FAILED')
 RETURNING job.id
), forgotten AS (
    UPDATE django_reliable_jobs_jobcheckpoint AS saved
       SET fencing_token = nextval('django_reliable_jobs_fencing_token'), version = 0, value = NULL,
           updated_at = statement_timestamp()
      FROM replaced
     WHERE saved.job_id = replaced.id
)
SELECT id FROM replaced
