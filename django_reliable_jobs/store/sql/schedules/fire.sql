-- Fires schedules: one statement, so that a run, its job and the schedule's advance are there together or not at all, and
-- so that a client which is stopped or dies holds no lock in between.
--
-- `mine` decides: a schedule is taken if its version, `fired_through` and `waiting_for` are those that the fire times were
-- computed from, and if no other worker has it locked just now; nobody waits behind anybody. By hand (`manual`) it is fired
-- whatever its place is, and keeps that. A run that is there already (unique by name and fire time) makes no second job.
-- Job ids are drawn first, so that a run can name its job. Jobs that a fire cancels are cancelled before its own is
-- inserted, since they may hold its unique key; an unfinished job that still holds it makes the whole statement fail.
--
-- The time is linear in the runs: the planner does not know how many there are, so what is recorded is looked up in a hash
-- (`IS TRUE` keeps the subquery from becoming a join, which would be a nested loop), and `mine` has few rows.
--
-- Two waits are possible, and bounded by `lock_timeout`: for a rival's uncommitted job with the same unique key, and for
-- a job to cancel whose row somebody has locked.
WITH planned AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(versions)s::int[], %(fired_throughs)s::timestamptz[],
                  %(waiting_fors)s::timestamptz[], %(new_fired_throughs)s::timestamptz[], %(next_fires)s::timestamptz[],
                  %(new_waiting_fors)s::timestamptz[], %(pauses)s::bool[])
           AS p (id, version, fired_through, waiting_for, new_fired_through, next_fire, new_waiting_for, pause)
     WHERE CASE WHEN %(manual)s::bool THEN true ELSE set_config('lock_timeout', %(patience)s::text, true) <> '' END
), mine AS MATERIALIZED (
    SELECT s.id, s.name
      FROM planned AS p
      JOIN django_reliable_jobs_cronschedule AS s ON s.id = p.id
     WHERE s.version = p.version
       AND (%(manual)s::bool OR (s.fired_through = p.fired_through AND s.waiting_for IS NOT DISTINCT FROM p.waiting_for
                           AND s.next_fire_at <= statement_timestamp() AND NOT s.paused AND s.broken = ''))
     ORDER BY s.id
       FOR NO KEY UPDATE OF s SKIP LOCKED
), advanced AS (
    UPDATE django_reliable_jobs_cronschedule AS s
       SET fired_through = greatest(s.fired_through, p.new_fired_through),
           next_fire_at = p.next_fire,
           waiting_for = p.new_waiting_for,
           paused = p.pause
      FROM mine
      JOIN planned AS p ON p.id = mine.id
     WHERE s.id = mine.id AND NOT %(manual)s::bool
), run AS MATERIALIZED (
    SELECT r.*, mine.name,
           CASE WHEN r.outcome = 'enqueued'
                THEN nextval(pg_get_serial_sequence('django_reliable_jobs_job', 'id')) END AS job_id
      FROM unnest(%(run_ids)s::bigint[], %(scheduled_fors)s::timestamptz[], %(outcomes)s::text[], %(details)s::text[],
                  %(skipped_throughs)s::timestamptz[], %(skipped_counts)s::int[], %(delays)s::float8[],
                  %(job_names)s::text[], %(queues)s::text[], %(job_priorities)s::int[], %(job_args)s::text[],
                  %(job_kwargs)s::text[], %(max_attempts)s::int[], %(timeouts)s::float8[], %(expires_ins)s::float8[],
                  %(unique_keys)s::text[], %(until_starts)s::bool[], %(scopes)s::text[])
           AS r (id, scheduled_for, outcome, detail, skipped_through, skipped_count, delay, job_name, queue, priority,
                 args, kwargs, max_attempts, timeout, expires_in, unique_key, until_start, scope)
      JOIN mine ON mine.id = r.id
), stopping AS MATERIALIZED (
    SELECT job.id
      FROM unnest(%(stop_ids)s::bigint[], %(stop_jobs)s::bigint[]) AS stop (id, job_id)
      JOIN mine ON mine.id = stop.id
      JOIN django_reliable_jobs_job AS job ON job.id = stop.job_id
     WHERE job.status IN ('QUEUED', 'FAILED', 'RUNNING')
     ORDER BY job.id
       FOR NO KEY UPDATE OF job
), cancelled AS (
    UPDATE django_reliable_jobs_job AS job
       SET status = CASE job.status WHEN 'RUNNING' THEN 'RUNNING' ELSE 'CANCELLED' END,
           reason = CASE job.status WHEN 'RUNNING' THEN job.reason ELSE 'cancel requested' END,
           cancel_requested_at = coalesce(job.cancel_requested_at, statement_timestamp()),
           finished_at = CASE job.status WHEN 'RUNNING' THEN NULL ELSE statement_timestamp() END
      FROM stopping
     WHERE job.id = stopping.id
 RETURNING job.id, job.locked_by
), recorded AS (
    INSERT INTO django_reliable_jobs_cronrun (
        name, scheduled_for, outcome, detail, skipped_through, skipped_count, job_id, job_status, fired_by, fired_at,
        manual)
    SELECT run.name, run.scheduled_for, run.outcome, run.detail, run.skipped_through, run.skipped_count, run.job_id, '',
           %(worker)s::uuid, statement_timestamp(), %(manual)s::bool
      FROM run
    ON CONFLICT DO NOTHING
    RETURNING job_id
), enqueued AS (
    INSERT INTO django_reliable_jobs_job (
        id, name, queue, args, kwargs, status, reason, priority, run_at, expires_at, attempts, max_attempts, losses,
        timeout, fencing_token, unique_key, unique_until_start, scope, scheduled_for, schedule,
        created_at)
    SELECT run.job_id, run.job_name, run.queue, run.args::jsonb, run.kwargs::jsonb, 'QUEUED', '', run.priority,
           statement_timestamp() + make_interval(secs => run.delay),
           statement_timestamp() + make_interval(secs => run.delay + run.expires_in),
           0, run.max_attempts, 0, run.timeout, 0, run.unique_key, run.until_start, run.scope, run.scheduled_for, run.name,
           statement_timestamp()
      FROM run
     WHERE (SELECT count(*) FROM cancelled) >= 0
       AND (run.job_id IN (SELECT recorded.job_id FROM recorded)) IS TRUE
    RETURNING id, queue, priority
)
SELECT mine.id, NULL::bigint, NULL::text, NULL::int, NULL::uuid FROM mine
UNION ALL
SELECT NULL, enqueued.id, enqueued.queue, enqueued.priority, NULL FROM enqueued
UNION ALL
SELECT NULL, NULL, NULL, NULL, cancelled.locked_by FROM cancelled
