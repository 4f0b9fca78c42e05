-- Deletes one batch of the attempts of jobs that have more than their first and their newest `keep`. It looks at the jobs of
-- the attempts that were recorded last: a job that gathers many comes among them again and again. What it costs is bounded
-- by `looked_at`, `keep` and `batch`, and most jobs have few.
WITH lately AS MATERIALIZED (
    SELECT attempt.job_id
      FROM django_reliable_jobs_jobattempt AS attempt
     ORDER BY attempt.id DESC
     LIMIT %(looked_at)s
), many AS MATERIALIZED (
    SELECT job.job_id, newest.fencing_token AS kept_from,
           (SELECT first.fencing_token
              FROM django_reliable_jobs_jobattempt AS first
             WHERE first.job_id = job.job_id
             ORDER BY first.fencing_token
             LIMIT 1) AS kept_first
      FROM (SELECT DISTINCT job_id FROM lately) AS job
     CROSS JOIN LATERAL (
           SELECT attempt.fencing_token
             FROM django_reliable_jobs_jobattempt AS attempt
            WHERE attempt.job_id = job.job_id
            ORDER BY attempt.fencing_token DESC
           OFFSET %(keep)s - 1
            LIMIT 1) AS newest
), surplus AS MATERIALIZED (
    SELECT attempt.id
      FROM many
      JOIN django_reliable_jobs_jobattempt AS attempt
        ON attempt.job_id = many.job_id
       AND attempt.fencing_token > many.kept_first AND attempt.fencing_token < many.kept_from
     LIMIT %(batch)s
       FOR UPDATE OF attempt SKIP LOCKED
)
DELETE FROM django_reliable_jobs_jobattempt AS attempt USING surplus WHERE attempt.id = surplus.id
