-- Saves a checkpoint in the caller's transaction. No row means that a newer attempt has been here, or that the job is not
-- RUNNING under this token any more: a handler that swallows its stop goes on, its checkpoints do not. The job's row is
-- read, not locked, or a heartbeat would wait for the caller's transaction.
INSERT INTO django_reliable_jobs_jobcheckpoint AS saved (job_id, fencing_token, version, value, updated_at)
SELECT job.id, job.fencing_token, 1, %(value)s::jsonb, statement_timestamp()
  FROM django_reliable_jobs_job AS job
 WHERE job.id = %(job_id)s AND job.fencing_token = %(token)s AND job.status || '' = 'RUNNING'
ON CONFLICT (job_id) DO UPDATE
   SET fencing_token = excluded.fencing_token, version = saved.version + 1, value = excluded.value,
       updated_at = excluded.updated_at
 WHERE saved.fencing_token <= excluded.fencing_token
RETURNING version
