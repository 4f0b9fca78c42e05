-- The (queue, priority) pairs that have claimable jobs, each with the seconds until its first one is due (negative: since
-- when it waits) and its `run_at`. A loose index scan: one probe for each pair, whatever the backlog. At most `most` of them,
-- behind the pair (`after_queue`, `after_priority`); those of paused queues are only said to be there.
WITH RECURSIVE pair AS (
    SELECT first.queue, first.priority, first.run_at, 1 AS number
      FROM (
        (SELECT job.queue, job.priority, job.run_at
           FROM django_reliable_jobs_job AS job
          WHERE job.status IN ('QUEUED', 'FAILED')
            AND job.queue = %(after_queue)s::text AND job.priority < %(after_priority)s::int
          ORDER BY job.queue, job.priority DESC, job.run_at
          LIMIT 1)
        UNION ALL
        (SELECT job.queue, job.priority, job.run_at
           FROM django_reliable_jobs_job AS job
          WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue > %(after_queue)s::text
          ORDER BY job.queue, job.priority DESC, job.run_at
          LIMIT 1)
        LIMIT 1) AS first
    UNION ALL
    SELECT found.queue, found.priority, found.run_at, pair.number + 1
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
     WHERE pair.number < %(most)s::int
)
SELECT pair.queue, pair.priority, extract(epoch FROM {moment pair.run_at} - statement_timestamp())::float8,
       {moment pair.run_at} AT TIME ZONE 'UTC', state.queue IS NOT NULL
  FROM pair
  LEFT JOIN django_reliable_jobs_queuestate AS state ON state.queue = pair.queue AND state.paused
 ORDER BY pair.number
