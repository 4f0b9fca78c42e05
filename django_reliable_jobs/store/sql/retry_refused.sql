-- Why these jobs are not retried: the unfinished job that has the unique key of each that could be. No row: it cannot be.
SELECT job.id, (
           SELECT holder.id
             FROM django_reliable_jobs_job AS holder
            WHERE holder.unique_key = job.unique_key
              AND coalesce(holder.scope, holder.name) = coalesce(job.scope, job.name)
              AND holder.id <> job.id AND holder.status IN ('QUEUED', 'RUNNING', 'FAILED')
              AND holder.cancel_requested_at IS NULL
            LIMIT 1)
  FROM django_reliable_jobs_job AS job
 WHERE job.id = ANY (%(job_ids)s::bigint[]) AND job.status IN ('DEAD', 'FAILED', 'CANCELLED')
