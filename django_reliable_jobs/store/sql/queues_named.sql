-- Which of these queues no job waits in and nobody has paused or resumed.
SELECT asked.queue
  FROM unnest(%(queues)s::text[]) AS asked (queue)
 WHERE NOT EXISTS (
    SELECT FROM django_reliable_jobs_job AS job WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = asked.queue LIMIT 1)
   AND NOT EXISTS (SELECT FROM django_reliable_jobs_queuestate AS state WHERE state.queue = asked.queue)
