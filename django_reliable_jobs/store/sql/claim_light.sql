-- The claim of the exchange alone, and from one place: for a worker that has nothing to settle and was told where a job is.
-- A plan of a few nodes takes half as long as that of the exchange, which is most of what an idle worker's pickup takes.
--
-- `taken` decides: FOR NO KEY UPDATE SKIP LOCKED, conditions checked again on the locked version. It passes over all that
-- rivals hold, and takes for free slots only, which lost jobs and last attempts may have too (protocol 8).
WITH taken AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = %(queue)s::text AND job.priority = %(priority)s::int
       AND (job.run_at, job.id) >= (%(since)s::timestamptz, %(since_id)s::bigint) AND job.run_at <= statement_timestamp()
       AND (job.expires_at IS NULL OR job.expires_at > statement_timestamp()
            OR job.first_started_at IS NOT NULL OR job.attempts > 0)
       AND job.name <> ALL (%(unknown_names)s::text[])
       AND NOT EXISTS (
        SELECT FROM django_reliable_jobs_queuestate AS state WHERE state.queue = %(queue)s::text AND state.paused)
     ORDER BY job.run_at, job.id
     LIMIT %(free)s::int
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
{parts/claimed}
