-- Cancels the expired holders of a job's unique keys, in the enqueue that meets them: nobody is to get a job that will never run.
WITH late AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.unique_key = ANY (%(unique_keys)s::text[]) AND coalesce(job.scope, job.name) = ANY (%(names)s::text[])
       AND job.status IN ('QUEUED', 'FAILED') AND job.cancel_requested_at IS NULL
       AND job.expires_at <= statement_timestamp() AND job.first_started_at IS NULL AND job.attempts = 0
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE django_reliable_jobs_job AS job
   SET status = 'CANCELLED', reason = 'expired', finished_at = statement_timestamp()
  FROM late
 WHERE job.id = late.id
RETURNING job.id
