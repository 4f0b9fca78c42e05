-- The (queue, priority) pairs that have claimable jobs, each with the seconds until its first one is due (negative: since
-- when it waits) and its `run_at`. A loose index scan: one probe for each pair, whatever the backlog.
WITH RECURSIVE pair AS (
    (SELECT job.queue, job.priority, job.run_at
       FROM django_reliable_jobs_job AS job
      WHERE job.status IN ('QUEUED', 'FAILED')
      ORDER BY job.queue, job.priority DESC, job.run_at
      LIMIT 1)
    UNION ALL
    SELECT found.queue, found.priority, found.run_at
      FROM pair
     CROSS JOIN LATERAL (
        (SELECT job.queue, job.priority, job.run_at
           FROM django_reliable_jobs_job AS job
          WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = pair.queue AND job.priority < pair.priority
          ORDER BY job.queue, job.priority DESC, job.run_at
          LIMIT 1)
        UNION ALL
        (SELECT job.queue, job.priority, job.run_at
           FROM django_reliable_jobs_job AS job
          WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue > pair.queue
          ORDER BY job.queue, job.priority DESC, job.run_at
          LIMIT 1)
        LIMIT 1) AS found
)
SELECT pair.queue, pair.priority, extract(epoch FROM {moment pair.run_at} - statement_timestamp())::float8,
       {moment pair.run_at} AT TIME ZONE 'UTC'
  FROM pair
 WHERE NOT EXISTS (
    SELECT FROM django_reliable_jobs_queuestate AS state WHERE state.queue = pair.queue AND state.paused)
