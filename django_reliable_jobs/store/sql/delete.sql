-- Deletes jobs with their attempts and checkpoints, never a RUNNING one. A cron run keeps its job's status and finish time;
-- that of a job that waited reads CANCELLED, since it will not run any more. The ids are named again for the indexes.
WITH wanted AS MATERIALIZED (
    SELECT job.id, CASE WHEN job.status IN ('QUEUED', 'FAILED') THEN 'CANCELLED' ELSE job.status END AS status,
           coalesce(job.finished_at, statement_timestamp()) AS finished_at
      FROM django_reliable_jobs_job AS job
     WHERE job.id = ANY (%(job_ids)s::bigint[]) AND job.status <> 'RUNNING'
     ORDER BY job.id
       FOR UPDATE OF job
), runs AS (
    UPDATE django_reliable_jobs_cronrun AS run
       SET job_status = wanted.status, job_finished_at = {moment wanted.finished_at}
      FROM wanted
     WHERE run.job_id = wanted.id AND run.job_id = ANY (%(job_ids)s::bigint[])
), attempts AS (
    DELETE FROM django_reliable_jobs_jobattempt AS attempt USING wanted
     WHERE attempt.job_id = wanted.id AND attempt.job_id = ANY (%(job_ids)s::bigint[])
), checkpoints AS (
    DELETE FROM django_reliable_jobs_jobcheckpoint AS checkpoint USING wanted
     WHERE checkpoint.job_id = wanted.id AND checkpoint.job_id = ANY (%(job_ids)s::bigint[])
)
DELETE FROM django_reliable_jobs_job AS job USING wanted WHERE job.id = wanted.id
RETURNING job.id
