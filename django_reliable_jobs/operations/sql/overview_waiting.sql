-- What is ready, by queue and priority, and since when the first one is.
--
-- The pairs come from a loose index scan (one probe for each), the counts from the index that claims use. Each count stops
-- at its pair's share of `most`, so the cost does not depend on the backlog; `capped` says that it stopped.
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
), few AS MATERIALIZED (
    SELECT * FROM pair LIMIT %(pairs)s
), share AS MATERIALIZED (
    SELECT least(%(most_each)s, greatest(%(least_each)s, %(most)s / greatest(count(*), 1))) AS n FROM few
)
SELECT few.queue, extract(epoch FROM statement_timestamp() - {moment few.run_at})::float8 AS oldest, due.count,
       due.count >= (SELECT n FROM share) AS capped
  FROM few
 CROSS JOIN LATERAL (
    SELECT count(*)::int AS count
      FROM (SELECT
              FROM django_reliable_jobs_job AS job
             WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = few.queue AND job.priority = few.priority
               AND job.run_at <= statement_timestamp()
             ORDER BY job.run_at
             LIMIT (SELECT n FROM share)) AS job) AS due
