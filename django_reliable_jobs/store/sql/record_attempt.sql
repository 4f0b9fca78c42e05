-- Keeps the error of an attempt that an atomic job ended by returning Retry; the exchange records the others itself.
INSERT INTO django_reliable_jobs_jobattempt (
    job_id, fencing_token, attempt, status, reason, worker, started_at, finished_at,
    error_kind, error_message, traceback)
SELECT job.id, job.fencing_token, %(attempt)s, job.status, job.reason, %(worker)s::uuid, {moment job.started_at},
       statement_timestamp(), %(kind)s, %(message)s, %(traceback)s
  FROM django_reliable_jobs_job AS job
 WHERE job.id = %(job_id)s
ON CONFLICT DO NOTHING
