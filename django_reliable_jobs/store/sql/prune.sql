-- Deletes one batch of finished jobs of one status that are older than their retention, with their attempts and
-- checkpoints. A cron run keeps its job's status and finish time. Never a job that somebody else has locked, never one that is not finished.
WITH old AS MATERIALIZED (
    SELECT job.id, job.status, job.finished_at
      FROM django_reliable_jobs_job AS job
     WHERE job.status = %(status)s AND job.status IN ('DONE', 'DEAD', 'CANCELLED')
       AND job.finished_at < statement_timestamp() - make_interval(secs => %(age)s::float8)
     ORDER BY job.finished_at
     LIMIT %(batch)s
       FOR UPDATE OF job SKIP LOCKED
), runs AS (
    UPDATE django_reliable_jobs_cronrun AS run
       SET job_status = old.status, job_finished_at = {moment old.finished_at}
      FROM old
     WHERE run.job_id = old.id
), attempts AS (
    DELETE FROM django_reliable_jobs_jobattempt AS attempt USING old WHERE attempt.job_id = old.id
), checkpoints AS (
    DELETE FROM django_reliable_jobs_jobcheckpoint AS checkpoint USING old WHERE checkpoint.job_id = old.id
)
DELETE FROM django_reliable_jobs_job AS job USING old WHERE job.id = old.id
RETURNING job.id
