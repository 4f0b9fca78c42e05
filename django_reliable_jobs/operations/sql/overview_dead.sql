-- DEAD jobs by queue, the newest `most` of them: how many, how many since an hour ago, and seconds since the last one.
SELECT job.queue, count(*)::int,
       (count(*) FILTER (WHERE job.finished_at > statement_timestamp() - interval '1 hour'))::int,
       extract(epoch FROM statement_timestamp() - max({moment job.finished_at}))::float8
  FROM (SELECT queue, finished_at
          FROM django_reliable_jobs_job
         WHERE status = 'DEAD' AND finished_at IS NOT NULL
         ORDER BY finished_at DESC
         LIMIT %(most)s) AS job
 GROUP BY job.queue
