-- Cancels jobs that did not start in time. The claim never takes one, so there is no race for it.
WITH late AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.status IN ('QUEUED', 'FAILED') AND job.expires_at <= statement_timestamp()
     ORDER BY job.expires_at
     LIMIT %(batch)s
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE django_reliable_jobs_job AS job
   SET status = 'CANCELLED', reason = 'expired', finished_at = statement_timestamp()
  FROM late
 WHERE job.id = late.id
RETURNING job.id
