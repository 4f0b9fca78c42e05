-- Makes waiting jobs due; status and attempts stay.
WITH wanted AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.id = ANY (%(job_ids)s::bigint[]) AND job.status IN ('QUEUED', 'FAILED')
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
)
UPDATE django_reliable_jobs_job AS job
   SET run_at = least(job.run_at, statement_timestamp())
  FROM wanted
 WHERE job.id = wanted.id
RETURNING job.id, job.queue, job.priority
