-- Raises the mark to the last token that was given. One row, which nobody is waited for: a rival raises it as far.
WITH last AS MATERIALIZED (
    SELECT pg_sequence_last_value('django_reliable_jobs_fencing_token'::regclass) AS token
), raised AS (
    UPDATE django_reliable_jobs_tokenmark AS mark
       SET token = last.token
      FROM last
     WHERE mark.id IN (SELECT held.id
                         FROM django_reliable_jobs_tokenmark AS held, last
                        WHERE held.id = 1 AND held.token < last.token
                          FOR NO KEY UPDATE OF held SKIP LOCKED)
)
INSERT INTO django_reliable_jobs_tokenmark (id, token)
SELECT 1, last.token
  FROM last
 WHERE last.token IS NOT NULL AND NOT EXISTS (SELECT FROM django_reliable_jobs_tokenmark WHERE id = 1)
ON CONFLICT DO NOTHING
