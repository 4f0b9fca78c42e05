-- The last token that the sequence has given (0: none), and the greatest that is known to have been given: the mark, and what
-- the newest rows of three indexes hold, since the mark is a minute old. No walk through a table.
SELECT coalesce(pg_sequence_last_value('django_reliable_jobs_fencing_token'::regclass), 0),
       greatest(
           coalesce((SELECT token FROM django_reliable_jobs_tokenmark WHERE id = 1), 0),
           (SELECT coalesce(max(fencing_token), 0)
              FROM (SELECT fencing_token FROM django_reliable_jobs_jobattempt ORDER BY id DESC LIMIT 100) AS attempt),
           (SELECT coalesce(max(fencing_token), 0)
              FROM (SELECT fencing_token
                      FROM django_reliable_jobs_job
                     WHERE status = 'RUNNING'
                     ORDER BY locked_until DESC
                     LIMIT 1000) AS running),
           (SELECT coalesce(max(fencing_token), 0)
              FROM (SELECT fencing_token
                      FROM django_reliable_jobs_job
                     WHERE status = 'DONE' AND finished_at IS NOT NULL
                     ORDER BY finished_at DESC
                     LIMIT 100) AS done))
