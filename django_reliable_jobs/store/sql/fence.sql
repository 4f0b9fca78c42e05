-- Passes a fence: takes its row until the transaction ends and notes the token. No row means that a newer one has been
-- seen. A writer that holds the row is waited for.
INSERT INTO django_reliable_jobs_fence AS fence (name, fencing_token, passed_at)
VALUES (%(name)s, %(token)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE
   SET fencing_token = excluded.fencing_token, passed_at = clock_timestamp()
 WHERE fence.fencing_token <= excluded.fencing_token
RETURNING fence.fencing_token
