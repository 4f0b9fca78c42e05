-- Schedules, those that need a person first, then by name. `overdue`: seconds since it should have been looked at.
SELECT id, name, job_name, expression, timezone, source, paused, broken, {moment next_fire_at},
       CASE WHEN NOT paused AND broken = ''
            THEN extract(epoch FROM statement_timestamp() - {moment next_fire_at})::float8 END AS overdue
  FROM django_reliable_jobs_cronschedule
 ORDER BY (broken <> '' OR (NOT paused AND coalesce(next_fire_at < statement_timestamp() - interval '1 minute', false))) DESC,
          name
 LIMIT %(most)s
