-- Gives back what its owner has lost: expired leases or, for a worker known to be dead, all of its leases. The lease is
-- checked again on the locked version of the row, so that a job which was settled or heartbeaten meanwhile is left alone.
-- Nobody knows what a lost host had begun: all of it counts as begun, also what older code has claimed, which sets no
-- `first_started_at`. From the second loss on the job waits (backoff), since it may be what kills its workers.
--
-- Where it is later than `latest` the database's clock was set forward, and the leases of the living have run out as well.
--
-- A lease that ends later than any worker can have said (raw SQL) gets an end: its owner extends it, if it has one.
WITH lost AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.started_at,
           CASE WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                WHEN job.attempts >= job.max_attempts THEN 'DEAD'
                ELSE 'QUEUED' END AS status
      FROM django_reliable_jobs_job AS job
      JOIN (
        -- Two branches, so that the usual one is a range of the index and not a walk over all running jobs.
        (SELECT id FROM django_reliable_jobs_job
          WHERE status = 'RUNNING' AND locked_until < statement_timestamp()
            AND statement_timestamp() < to_timestamp(%(latest)s::float8)
            AND locked_until >= CASE WHEN %(reach)s::float8 >= 1e10 THEN '-infinity' ELSE statement_timestamp() - make_interval(secs => %(reach)s::float8) END
          LIMIT %(batch)s)
        UNION
        (SELECT id FROM django_reliable_jobs_job
          WHERE cardinality(%(dead_workers)s::uuid[]) > 0
            AND status = 'RUNNING' AND locked_by = ANY (%(dead_workers)s::uuid[])
          LIMIT %(batch)s)) AS suspect ON suspect.id = job.id
     WHERE job.status = 'RUNNING'
       AND (job.locked_until < statement_timestamp()
            AND job.locked_until >= CASE WHEN %(reach)s::float8 >= 1e10 THEN '-infinity' ELSE statement_timestamp() - make_interval(secs => %(reach)s::float8) END
            OR job.locked_by = ANY (%(dead_workers)s::uuid[]))
     ORDER BY job.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
), reaped AS (
    UPDATE django_reliable_jobs_job AS job
       SET status = lost.status,
           reason = CASE lost.status WHEN 'CANCELLED' THEN 'cancel requested' ELSE 'lost' END,
           losses = least(job.losses, 2147483646) + 1,
           first_started_at = coalesce(job.first_started_at, job.started_at),
           run_at = CASE WHEN lost.status = 'QUEUED' AND job.losses >= 1
                         THEN statement_timestamp() + make_interval(secs => (0.5 + random() / 2) * least(%(cap)s::float8,
                              %(base)s::float8 * power(%(factor)s::float8, least(job.losses - 1, %(steps)s::float8))))
                         ELSE job.run_at END,
           locked_by = CASE WHEN lost.status <> 'QUEUED' THEN job.locked_by END,
           locked_until = NULL,
           finished_at = CASE WHEN lost.status <> 'QUEUED' THEN statement_timestamp() END
      FROM lost
     WHERE job.id = lost.id
 RETURNING job.id, job.name, job.queue, job.priority, job.status, job.attempts, job.fencing_token, lost.locked_by AS worker,
           {moment lost.started_at} AS started_at
), recorded AS (
    INSERT INTO django_reliable_jobs_jobattempt (
        job_id, fencing_token, attempt, status, reason, worker, started_at, finished_at,
        error_kind, error_message, traceback)
    SELECT reaped.id, reaped.fencing_token, reaped.attempts, reaped.status, 'lost', reaped.worker, reaped.started_at,
           statement_timestamp(), 'WorkerLost', 'the worker that ran this attempt was lost', ''
      FROM reaped
    ON CONFLICT DO NOTHING
), endless AS MATERIALIZED (
    SELECT job.id
      FROM django_reliable_jobs_job AS job
     WHERE job.status = 'RUNNING' AND job.locked_until > statement_timestamp() + interval '3651 days'
       AND NOT (job.locked_by = ANY (%(dead_workers)s::uuid[]))
     ORDER BY job.locked_until
     LIMIT %(batch)s
       FOR NO KEY UPDATE OF job SKIP LOCKED
), bounded AS (
    UPDATE django_reliable_jobs_job AS job
       SET locked_until = clock_timestamp() + make_interval(secs => %(lease)s::float8)
      FROM endless
     WHERE job.id = endless.id
)
SELECT id, name, queue, priority, status, attempts, worker FROM reaped
