-- FAILED jobs by queue, of the newest `most`.
SELECT job.queue, count(*)::int
  FROM (SELECT queue
          FROM django_reliable_jobs_job
         WHERE status = 'FAILED'
         ORDER BY id DESC
         LIMIT %(most)s) AS job
 GROUP BY job.queue
