-- Jobs whose names no living worker knows, and has not for long: a person decides. The names are judged anew, and their rows
-- held, so that of several workers one does it. A token is drawn for each, as a claim would, so that its record has one.
WITH judged AS MATERIALIZED (
    SELECT held.name
      FROM django_reliable_jobs_unknownname AS held
     WHERE held.name IN (
        {parts/judged}
        )
       FOR NO KEY UPDATE OF held SKIP LOCKED
), doomed AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.id = ANY (%(job_ids)s::bigint[]) AND job.status || '' IN ('QUEUED', 'FAILED')
       AND job.name IN (SELECT judged.name FROM judged)
     ORDER BY job.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
), dead AS (
    UPDATE django_reliable_jobs_job AS job
       SET status = 'DEAD', reason = 'unknown job', locked_by = NULL, locked_until = NULL, unknown_since = NULL,
           fencing_token = nextval('django_reliable_jobs_fencing_token'), finished_at = statement_timestamp()
      FROM doomed
     WHERE job.id = doomed.id
 RETURNING job.id, job.name, job.fencing_token, job.attempts
), recorded AS (
    INSERT INTO django_reliable_jobs_jobattempt (
        job_id, fencing_token, attempt, status, reason, worker, started_at, finished_at,
        error_kind, error_message, traceback)
    SELECT dead.id, dead.fencing_token, dead.attempts, 'DEAD', 'unknown job', NULL, NULL, statement_timestamp(),
           'UnknownJob', 'no job is named ' || quote_literal(dead.name) || ' in any worker that was seen lately', ''
      FROM dead
    ON CONFLICT DO NOTHING
)
SELECT dead.name FROM dead
