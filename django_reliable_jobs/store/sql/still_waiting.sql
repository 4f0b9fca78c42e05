-- Which of the leases that a worker holds and has not begun may still begin, as if they were claimed now (protocol 8): not those
-- that are cancelled, expired (unless the job had begun before this claim), lost, or in a queue that was paused.
SELECT job.id, job.fencing_token
  FROM unnest(%(job_ids)s::bigint[], %(tokens)s::bigint[]) AS held (job_id, token)
  JOIN django_reliable_jobs_job AS job ON job.id = held.job_id AND job.fencing_token = held.token
 WHERE job.status || '' = 'RUNNING' AND job.cancel_requested_at IS NULL
   AND (job.expires_at IS NULL OR job.expires_at > statement_timestamp() OR job.first_started_at < job.started_at
        OR job.attempts > 1)
   AND NOT EXISTS (
    SELECT FROM django_reliable_jobs_queuestate AS state WHERE state.queue = job.queue AND state.paused)
