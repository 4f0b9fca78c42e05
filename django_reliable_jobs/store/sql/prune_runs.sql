-- Deletes one batch of old cron runs. They cannot fire again: `fired_through` of their schedule only rises. A run whose job
-- is unfinished stays, since the next fire may have to mind it.
WITH old AS MATERIALIZED (
    SELECT run.id
      FROM django_reliable_jobs_cronrun AS run
     WHERE run.fired_at < statement_timestamp() - make_interval(secs => %(age)s::float8)
       AND NOT EXISTS (SELECT FROM django_reliable_jobs_job AS job
                        WHERE job.id = run.job_id AND job.status IN ('QUEUED', 'RUNNING', 'FAILED'))
     ORDER BY run.fired_at
     LIMIT %(batch)s
       FOR UPDATE OF run SKIP LOCKED
)
DELETE FROM django_reliable_jobs_cronrun AS run USING old WHERE run.id = old.id
RETURNING run.id
