-- The schedules of the code whose rows are missing, marked broken, or not as the code says, each with the app that the row
-- belongs to and whether workers with that app's code were seen within `alive` seconds,
-- and whether it is only the owner in which they differ.
SELECT wanted.name, s.source,
       EXISTS (SELECT FROM django_reliable_jobs_schedulerelease AS r
                WHERE r.source = s.source AND r.seen_at > statement_timestamp() - make_interval(secs => %(alive)s::float8)),
       coalesce(s.broken = ''
                AND (s.job_name, s.expression, s.timezone, s.args, s.kwargs, s.misfire, s.misfire_grace, s.catch_up_window,
                     s.catch_up_limit, s.overlap, s.jitter, s.starts_at, s.ends_at, s.pause_after_failures)
                    IS NOT DISTINCT FROM
                    (wanted.job_name, wanted.expression, wanted.timezone, wanted.args::jsonb, wanted.kwargs::jsonb,
                     wanted.misfire, wanted.misfire_grace, wanted.catch_up_window, wanted.catch_up_limit, wanted.overlap,
                     wanted.jitter, wanted.starts_at, wanted.ends_at, wanted.pause_after_failures), false)
  FROM unnest(%(names)s::text[], %(job_names)s::text[], %(expressions)s::text[], %(timezones)s::text[], %(args)s::text[],
              %(kwargs)s::text[], %(sources)s::text[], %(misfires)s::text[], %(misfire_graces)s::float8[],
              %(catch_up_windows)s::float8[], %(catch_up_limits)s::int[], %(overlaps)s::text[], %(jitters)s::float8[],
              %(starts_ats)s::timestamptz[], %(ends_ats)s::timestamptz[], %(pause_afters)s::int[])
       AS wanted (name, job_name, expression, timezone, args, kwargs, source, misfire, misfire_grace, catch_up_window,
                  catch_up_limit, overlap, jitter, starts_at, ends_at, pause_after_failures)
  LEFT JOIN django_reliable_jobs_cronschedule AS s ON s.name = wanted.name
 WHERE s.id IS NULL OR s.broken <> ''
    OR (s.job_name, s.expression, s.timezone, s.args, s.kwargs, s.source, s.misfire, s.misfire_grace, s.catch_up_window,
        s.catch_up_limit, s.overlap, s.jitter, s.starts_at, s.ends_at, s.pause_after_failures)
       IS DISTINCT FROM
       (wanted.job_name, wanted.expression, wanted.timezone, wanted.args::jsonb, wanted.kwargs::jsonb, wanted.source,
        wanted.misfire, wanted.misfire_grace, wanted.catch_up_window, wanted.catch_up_limit, wanted.overlap, wanted.jitter,
        wanted.starts_at, wanted.ends_at, wanted.pause_after_failures)
