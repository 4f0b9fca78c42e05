-- Cancels jobs that no handler has begun in time; one that has once begun never expires. (`attempts`: what older code has
-- claimed has no `first_started_at`.) The claim never takes one, so there is no race for it.
WITH late AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.status IN ('QUEUED', 'FAILED') AND job.expires_at <= statement_timestamp()
       AND job.first_started_at IS NULL AND job.attempts = 0
     ORDER BY job.expires_at
     LIMIT %(batch)s
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE django_reliable_jobs_job AS job
   SET status = 'CANCELLED', reason = 'expired', finished_at = statement_timestamp()
  FROM late
 WHERE job.id = late.id
RETURNING job.id
