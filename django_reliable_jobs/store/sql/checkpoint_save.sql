-- Saves a checkpoint in the caller's transaction. No row means that a newer attempt has been here.
INSERT INTO django_reliable_jobs_jobcheckpoint AS saved (job_id, fencing_token, version, value, updated_at)
VALUES (%(job_id)s, %(token)s, 1, %(value)s::jsonb, statement_timestamp())
ON CONFLICT (job_id) DO UPDATE
   SET fencing_token = excluded.fencing_token, version = saved.version + 1, value = excluded.value,
       updated_at = excluded.updated_at
 WHERE saved.fencing_token <= excluded.fencing_token
RETURNING version
