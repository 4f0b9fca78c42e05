-- Failed attempts (lost ones too) by slice of time and queue, of the newest `most` attempts: read backwards by the primary
-- key. The row without a queue says how many were read, and how many seconds ago the oldest of them ended.
WITH newest AS MATERIALIZED (
    SELECT job_id, status, reason, {moment finished_at} AS finished_at
      FROM django_reliable_jobs_jobattempt
     ORDER BY id DESC
     LIMIT %(most)s
), clock AS (
    SELECT floor(extract(epoch FROM statement_timestamp()) / %(width)s) * %(width)s AS edge
)
SELECT failed.n, failed.queue, count(*)::int, NULL::float8
  FROM (SELECT ceil((clock.edge - extract(epoch FROM newest.finished_at)) / %(width)s)::int AS n,
               (SELECT job.queue FROM django_reliable_jobs_job AS job WHERE job.id = newest.job_id) AS queue
          FROM newest, clock
         WHERE newest.finished_at >= to_timestamp(clock.edge - (%(slices)s - 1) * %(width)s)
           AND (newest.status IN ('FAILED', 'DEAD') OR newest.reason = 'lost')) AS failed
 WHERE failed.queue IS NOT NULL
 GROUP BY failed.n, failed.queue
UNION ALL
SELECT NULL, NULL, count(*)::int, extract(epoch FROM statement_timestamp() - min(finished_at))::float8 FROM newest
