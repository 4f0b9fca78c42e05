-- The next waiting jobs behind a place in the claim's order, by the claim's index: which of them have one of the names, and
-- where the next look goes on. Three ranges, since the index is descending in the middle.
WITH walked AS MATERIALIZED (
    (SELECT job.id, job.name, job.queue, job.priority, job.run_at
       FROM django_reliable_jobs_job AS job
      WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = %(queue)s::text AND job.priority = %(priority)s::int
        AND (job.run_at, job.id) > (%(run_at)s::timestamptz, %(job_id)s::bigint)
      ORDER BY job.queue, job.priority DESC, job.run_at, job.id
      LIMIT %(most)s::int)
    UNION ALL
    (SELECT job.id, job.name, job.queue, job.priority, job.run_at
       FROM django_reliable_jobs_job AS job
      WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = %(queue)s::text AND job.priority < %(priority)s::int
      ORDER BY job.queue, job.priority DESC, job.run_at, job.id
      LIMIT %(most)s::int)
    UNION ALL
    (SELECT job.id, job.name, job.queue, job.priority, job.run_at
       FROM django_reliable_jobs_job AS job
      WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue > %(queue)s::text
      ORDER BY job.queue, job.priority DESC, job.run_at, job.id
      LIMIT %(most)s::int)
    LIMIT %(most)s::int
)
SELECT found.ids, found.count, last.queue, last.priority, last.run_at::text, last.id
  FROM (SELECT array_agg(walked.id) FILTER (WHERE walked.name = ANY (%(names)s::text[])) AS ids, count(*)::int AS count
          FROM walked) AS found
  LEFT JOIN (SELECT walked.queue, walked.priority, walked.run_at, walked.id
               FROM walked
              ORDER BY walked.queue DESC, walked.priority, walked.run_at DESC, walked.id DESC
              LIMIT 1) AS last ON true
