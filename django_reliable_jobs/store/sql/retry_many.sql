-- An operator's retry of many: those whose unique key is free. The others stay as they are; `retry_refused` says why. A key
-- that is taken at this very moment breaks the statement, and the jobs are retried one by one.
WITH wanted AS MATERIALIZED (
    SELECT job.id, job.unique_key, coalesce(job.scope, job.name) AS scope
      FROM django_reliable_jobs_job AS job
     WHERE job.id = ANY (%(job_ids)s::bigint[]) AND job.status IN ('DEAD', 'FAILED', 'CANCELLED')
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
), free AS (
    SELECT min(wanted.id) AS id
      FROM wanted
     WHERE NOT EXISTS (
               SELECT FROM django_reliable_jobs_job AS holder
                WHERE holder.unique_key = wanted.unique_key AND coalesce(holder.scope, holder.name) = wanted.scope
                  AND holder.id <> wanted.id AND holder.status IN ('QUEUED', 'RUNNING', 'FAILED')
                  AND holder.cancel_requested_at IS NULL)
     GROUP BY wanted.unique_key, wanted.scope, CASE WHEN wanted.unique_key IS NULL THEN wanted.id END
)
UPDATE django_reliable_jobs_job AS job
   SET status = 'QUEUED', reason = '', run_at = statement_timestamp(), attempts = 0, losses = 0, infrastructure_failures = 0,
       expires_at = NULL, cancel_requested_at = NULL, unknown_since = NULL, locked_by = NULL, result = NULL,
       progress = NULL, finished_at = NULL
  FROM free
 WHERE job.id = free.id
RETURNING job.id, job.queue, job.priority
