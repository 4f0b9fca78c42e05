-- Cancels waiting jobs at once and asks the workers of running ones to stop: one UPDATE, decided by the status it meets.
WITH wanted AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.id = ANY (%(job_ids)s::bigint[]) AND job.status IN ('QUEUED', 'FAILED', 'RUNNING')
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE django_reliable_jobs_job AS job
   SET status = CASE job.status WHEN 'RUNNING' THEN 'RUNNING' ELSE 'CANCELLED' END,
       reason = CASE job.status WHEN 'RUNNING' THEN job.reason ELSE 'cancel requested' END,
       cancel_requested_at = coalesce(job.cancel_requested_at, statement_timestamp()),
       finished_at = CASE job.status WHEN 'RUNNING' THEN NULL ELSE statement_timestamp() END
  FROM wanted
 WHERE job.id = wanted.id
RETURNING job.id, job.status, job.locked_by
