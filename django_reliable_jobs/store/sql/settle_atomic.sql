-- One outcome inside the handler's own transaction (an atomic job): the last statement before its commit. The lease is
-- verified by the pair and the status; no row means that the lease is lost, and the caller rolls everything back. From here
-- on the row is locked and only the commit is to come: a worker that is cut off before it holds the lock for `idle` ms at most.
UPDATE django_reliable_jobs_job AS job
   SET status = CASE WHEN cancelled THEN 'CANCELLED' ELSE %(status)s END,
       reason = CASE WHEN cancelled THEN 'cancel requested' ELSE %(reason)s END,
       run_at = coalesce(statement_timestamp() + make_interval(secs => %(delay)s::float8), job.run_at),
       attempts = greatest(job.attempts, 1 - 2147483648) - %(give_back)s::int,
       unknown_since = NULL,
       infrastructure_failures = CASE WHEN %(status)s IN ('DONE', 'QUEUED') THEN 0 ELSE job.infrastructure_failures END,
       result = %(result)s::jsonb,
       progress = coalesce(%(progress)s::jsonb, job.progress),
       locked_by = CASE WHEN finished OR cancelled THEN job.locked_by END,
       locked_until = NULL,
       finished_at = CASE WHEN finished OR cancelled THEN clock_timestamp() END
  FROM (
    SELECT id, cancel_requested_at IS NOT NULL AND %(status)s <> 'DONE' AS cancelled,
           %(status)s IN ('DONE', 'DEAD', 'CANCELLED') AS finished
      FROM django_reliable_jobs_job
     WHERE id = %(job_id)s AND fencing_token = %(token)s AND status = 'RUNNING' AND locked_by = %(worker)s::uuid
       FOR NO KEY UPDATE
  ) AS owned
 WHERE job.id = owned.id
RETURNING job.id, set_config('idle_in_transaction_session_timeout', %(idle)s::text, true)
