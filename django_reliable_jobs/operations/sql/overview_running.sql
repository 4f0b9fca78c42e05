-- What runs, by queue and worker; `lost` are leases that have expired and that nobody has reaped yet.
SELECT job.queue, job.locked_by, count(*)::int,
       (count(*) FILTER (WHERE job.locked_until < statement_timestamp()))::int AS lost
  FROM (SELECT queue, locked_by, locked_until
          FROM django_reliable_jobs_job
         WHERE status = 'RUNNING'
         ORDER BY locked_until
         LIMIT %(most)s) AS job
 GROUP BY job.queue, job.locked_by
