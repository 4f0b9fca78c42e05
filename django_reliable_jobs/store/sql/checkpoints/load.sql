-- Loads what was saved last and stamps the row with this attempt's token: from now on an older attempt cannot save. No
-- row means that a newer attempt has been here.
INSERT INTO django_reliable_jobs_jobcheckpoint AS saved (job_id, fencing_token, version, value, updated_at)
VALUES (%(job_id)s, %(token)s, 0, NULL, statement_timestamp())
ON CONFLICT (job_id) DO UPDATE
   SET fencing_token = excluded.fencing_token
 WHERE saved.fencing_token <= excluded.fencing_token
RETURNING value
