-- Hands back the leases of a worker that it does not hold: of a claim whose answer never arrived. Nothing of them has begun:
-- no attempt is used, and `first_started_at` is taken back if that claim was the first (then `started_at` is the same).
WITH unheld AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.status = 'RUNNING' AND job.locked_by = %(worker)s::uuid
       AND NOT (job.fencing_token = ANY (%(tokens)s::bigint[]))
     ORDER BY job.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE django_reliable_jobs_job AS job
   SET status = CASE WHEN job.cancel_requested_at IS NULL THEN 'QUEUED' ELSE 'CANCELLED' END,
       reason = CASE WHEN job.cancel_requested_at IS NULL THEN '' ELSE 'cancel requested' END,
       attempts = greatest(job.attempts, 1 - 2147483648) - 1,
       first_started_at = nullif(job.first_started_at, job.started_at),
       locked_by = NULL,
       locked_until = NULL,
       finished_at = CASE WHEN job.cancel_requested_at IS NOT NULL THEN statement_timestamp() END
  FROM unheld
 WHERE job.id = unheld.id
RETURNING job.id
