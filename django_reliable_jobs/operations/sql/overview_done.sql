-- Jobs that were done, by slice of time (0 is the one that is not over) and queue. Of each slice the first `sample` are
-- read; where there are as many, `reach` (seconds from the slice's start to the last of them) lets the reader scale up.
SELECT slice.n, job.queue, count(*)::int, extract(epoch FROM max(job.finished_at) - slice.start)::float8 AS reach
  FROM (SELECT n, to_timestamp(edge - n * %(width)s) AS start, to_timestamp(edge - (n - 1) * %(width)s) AS stop
          FROM (SELECT floor(extract(epoch FROM statement_timestamp()) / %(width)s) * %(width)s AS edge) AS clock
         CROSS JOIN generate_series(0, %(slices)s - 1) AS n) AS slice
 CROSS JOIN LATERAL (
    SELECT queue, finished_at
      FROM django_reliable_jobs_job
     WHERE status = 'DONE' AND finished_at >= slice.start AND finished_at < slice.stop
     ORDER BY finished_at
     LIMIT %(sample)s) AS job
 GROUP BY slice.n, slice.start, job.queue
