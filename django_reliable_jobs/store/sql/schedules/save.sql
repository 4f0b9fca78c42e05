-- Writes one definition, new or changed. It never catches up on what was missed before this moment: with another timetable
-- it counts from now on, and a fire time that waited goes; with another job, arguments or rules what is merely late is
-- fired still. What people decided (paused) stays, also where
-- the code did not define it for a while. An unchanged row is left as it is, and not locked.
WITH wanted AS MATERIALIZED (
    SELECT %(name)s::text AS name, %(job_name)s::text AS job_name, %(expression)s::text AS expression,
           %(timezone)s::text AS timezone, %(args)s::jsonb AS args, %(kwargs)s::jsonb AS kwargs, %(source)s::text AS source,
           %(misfire)s::text AS misfire, %(misfire_grace)s::float8 AS misfire_grace,
           %(catch_up_window)s::float8 AS catch_up_window, %(catch_up_limit)s::int AS catch_up_limit,
           %(overlap)s::text AS overlap, %(jitter)s::float8 AS jitter, %(starts_at)s::timestamptz AS starts_at,
           %(ends_at)s::timestamptz AS ends_at, %(pause_after_failures)s::int AS pause_after_failures,
           %(next_fire)s::timestamptz AS next_fire, %(now)s::timestamptz AS now
), changed AS MATERIALIZED (
    SELECT s.id, s.waiting_for,
           (s.expression, s.timezone, s.starts_at, s.ends_at)
           IS DISTINCT FROM (w.expression, w.timezone, w.starts_at, w.ends_at) AS retimed
      FROM wanted AS w
      JOIN django_reliable_jobs_cronschedule AS s ON s.name = w.name
     WHERE s.broken <> ''
        OR (s.job_name, s.expression, s.timezone, s.args, s.kwargs, s.source, s.misfire, s.misfire_grace,
            s.catch_up_window, s.catch_up_limit, s.overlap, s.jitter, s.starts_at, s.ends_at, s.pause_after_failures)
           IS DISTINCT FROM
           (w.job_name, w.expression, w.timezone, w.args, w.kwargs, w.source, w.misfire, w.misfire_grace,
            w.catch_up_window, w.catch_up_limit, w.overlap, w.jitter, w.starts_at, w.ends_at, w.pause_after_failures)
       FOR NO KEY UPDATE OF s
), dropped AS (
    INSERT INTO django_reliable_jobs_cronrun (
        name, scheduled_for, outcome, detail, skipped_through, skipped_count, job_status, fired_at, manual)
    SELECT wanted.name, waiting_for, 'skipped_overlap', 'the schedule was changed while it waited', waiting_for, 1, '',
           statement_timestamp(), false
      FROM changed, wanted
     WHERE retimed AND waiting_for IS NOT NULL
    ON CONFLICT DO NOTHING
), updated AS (
    UPDATE django_reliable_jobs_cronschedule AS s
       SET job_name = w.job_name, expression = w.expression, timezone = w.timezone, args = w.args, kwargs = w.kwargs,
           source = w.source, misfire = w.misfire, misfire_grace = w.misfire_grace, catch_up_window = w.catch_up_window,
           catch_up_limit = w.catch_up_limit, overlap = w.overlap, jitter = w.jitter, starts_at = w.starts_at,
           ends_at = w.ends_at, pause_after_failures = w.pause_after_failures, broken = '', version = CASE WHEN s.version = 2147483647 THEN 1 ELSE s.version + 1 END,
           fired_through = greatest(
               CASE WHEN isfinite(s.fired_through) THEN s.fired_through ELSE w.now END,
               CASE WHEN changed.retimed THEN w.now ELSE w.now - make_interval(secs => w.misfire_grace) END),
           next_fire_at = CASE WHEN changed.retimed THEN w.next_fire
                               WHEN s.broken <> '' THEN w.now
                               ELSE s.next_fire_at END,
           waiting_for = CASE WHEN NOT changed.retimed THEN s.waiting_for END
      FROM changed, wanted AS w
     WHERE s.id = changed.id
 RETURNING s.id
), made AS (
    INSERT INTO django_reliable_jobs_cronschedule (
        name, job_name, expression, timezone, args, kwargs, source, misfire, misfire_grace, catch_up_window,
        catch_up_limit, overlap, jitter, starts_at, ends_at, pause_after_failures, paused, broken, version, fired_through,
        next_fire_at, resumed_at)
    SELECT name, job_name, expression, timezone, args, kwargs, source, misfire, misfire_grace, catch_up_window,
           catch_up_limit, overlap, jitter, starts_at, ends_at, pause_after_failures,
           source <> '' AND EXISTS (SELECT FROM django_reliable_jobs_schedulepause AS kept WHERE kept.name = wanted.name),
           '', 1, now, next_fire, now
      FROM wanted
     WHERE NOT EXISTS (SELECT FROM updated)
    ON CONFLICT (name) DO NOTHING
    RETURNING id, name
), resumed AS (
    DELETE FROM django_reliable_jobs_schedulepause WHERE name IN (SELECT made.name FROM made)
)
SELECT id FROM updated UNION ALL SELECT id FROM made
