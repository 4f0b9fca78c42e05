-- Candidates. `candidate` reads the claimable-only index once for each (queue, priority) that the worker knows of, so that
-- neither finished, running nor future rows, nor another queue's backlog, cost anything; each is looked at as far as its own
-- `most`, so that rows which somebody holds locked in one hide no other; `since` starts behind the entries
-- that this worker has just claimed (many may share a `run_at`), whose dead versions an open snapshot may keep in the index.
), pair AS MATERIALIZED (
    SELECT p.*
      FROM unnest(%(queues)s::text[], %(priorities)s::int[], %(sinces)s::timestamptz[], %(since_ids)s::bigint[],
                  %(caps)s::int[], %(windows)s::int[])
           WITH ORDINALITY AS p (queue, priority, since, since_id, cap, most, place)
     WHERE NOT EXISTS (
        SELECT FROM django_reliable_jobs_queuestate AS state WHERE state.queue = p.queue AND state.paused)
), candidate AS MATERIALIZED (
    SELECT *
      FROM (
        SELECT c.id, pair.place, pair.priority, c.run_at, pair.cap, CASE WHEN pair.cap IS NOT NULL THEN pair.queue END AS share,
               row_number() OVER (PARTITION BY pair.queue ORDER BY pair.priority DESC, c.run_at, c.id) AS rank
          FROM pair
         CROSS JOIN LATERAL (
            SELECT job.id, job.run_at
              FROM django_reliable_jobs_job AS job
             WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = pair.queue AND job.priority = pair.priority
               AND (job.run_at, job.id) >= (pair.since, pair.since_id) AND job.run_at <= statement_timestamp()
               AND (job.expires_at IS NULL OR job.expires_at > statement_timestamp()
                    OR job.first_started_at IS NOT NULL OR job.attempts > 0)
               AND job.name <> ALL (%(unknown_names)s::text[])
             ORDER BY job.run_at, job.id
             LIMIT pair.most) AS c
      ) AS found
     WHERE found.cap IS NULL OR found.rank <= found.cap + %(window)s::int - %(free)s::int - %(ahead)s::int
