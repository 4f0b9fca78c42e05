-- What is due, and in how many seconds the next one is: two probes of one index, whatever the number of schedules. Only
-- schedules whose job this process knows: those of another service, which nobody may be there to fire, are not to use up
-- the window. Of what is due, workers take different ones first (`random()`). Moments are seconds since 1970, so that one
-- that no host can represent spoils its own row and not the statement.
WITH due AS MATERIALIZED (
    SELECT s.id
      FROM django_reliable_jobs_cronschedule AS s
     WHERE NOT s.paused AND s.broken = '' AND s.next_fire_at <= statement_timestamp()
       AND s.job_name = ANY (%(known)s::text[])
       AND (s.id, s.version) NOT IN (SELECT * FROM unnest(%(aside_ids)s::bigint[], %(aside_versions)s::int[]))
     ORDER BY s.next_fire_at
     LIMIT %(within)s
), picked AS MATERIALIZED (
    SELECT id FROM due ORDER BY random() LIMIT %(batch)s
), mindful AS MATERIALIZED (
    SELECT s.name
      FROM picked
      JOIN django_reliable_jobs_cronschedule AS s ON s.id = picked.id
     WHERE s.overlap <> 'allow'
), open AS MATERIALIZED (
    -- Of each that minds, by its name: what is unfinished of others is not read. More than `most` are not needed: any
    -- number is an overlap, and what is not cancelled by this fire is by the next one.
    SELECT found.name, array_agg(found.id ORDER BY found.id) AS jobs,
           count(*) FILTER (WHERE found.status = 'RUNNING') AS running
      FROM (SELECT mindful.name, job.id, job.status
              FROM mindful
             CROSS JOIN LATERAL (
                   SELECT job.id, job.status
                     FROM django_reliable_jobs_job AS job
                    WHERE coalesce(job.schedule, '') = mindful.name
                      AND job.scheduled_for IS NOT NULL AND job.status IN ('QUEUED', 'RUNNING', 'FAILED')
                    ORDER BY job.id
                    LIMIT %(most)s) AS job
             UNION ALL
            -- What versions that did not write the schedule's name have enqueued: by their runs, of which a job has one.
            SELECT run.name, job.id, job.status
              FROM django_reliable_jobs_job AS job
             CROSS JOIN LATERAL (
                   SELECT r.name FROM django_reliable_jobs_cronrun AS r WHERE r.job_id = job.id LIMIT 1) AS run
             WHERE (SELECT count(*) FROM mindful) > 0
               AND coalesce(job.schedule, '') = ''
               AND job.scheduled_for IS NOT NULL AND job.status IN ('QUEUED', 'RUNNING', 'FAILED')
               AND run.name IN (SELECT mindful.name FROM mindful)) AS found
     GROUP BY found.name
)
SELECT around.*, s.id, s.name, s.job_name, s.expression, s.timezone, s.args::text, s.kwargs::text, s.source, s.misfire,
       s.misfire_grace, s.catch_up_window, s.catch_up_limit, s.overlap, s.jitter, extract(epoch FROM s.starts_at),
       extract(epoch FROM s.ends_at), s.pause_after_failures, s.version, extract(epoch FROM s.fired_through),
       extract(epoch FROM s.waiting_for), open.jobs, open.running, failed.count
  FROM (SELECT (SELECT count(*) FROM due),
               (SELECT extract(epoch FROM {moment n.next_fire_at}) - extract(epoch FROM statement_timestamp())
                  FROM django_reliable_jobs_cronschedule AS n
                 WHERE NOT n.paused AND n.broken = '' AND n.next_fire_at > statement_timestamp()
                 ORDER BY n.next_fire_at
                 LIMIT 1)::float8,
               extract(epoch FROM statement_timestamp())) AS around (due, next_in, now)
  LEFT JOIN (picked JOIN django_reliable_jobs_cronschedule AS s ON s.id = picked.id) ON true
  LEFT JOIN open ON open.name = s.name
  LEFT JOIN LATERAL (
       -- DEAD ones among the last finished jobs since it was made or resumed; asked for where somebody wants to know.
       SELECT count(*) FILTER (WHERE last.status = 'DEAD') AS count
         FROM (SELECT coalesce(job.status, run.job_status) AS status
                 FROM django_reliable_jobs_cronrun AS run
                 LEFT JOIN django_reliable_jobs_job AS job ON job.id = run.job_id
                WHERE s.pause_after_failures IS NOT NULL
                  AND run.name = s.name AND run.scheduled_for >= s.resumed_at AND run.outcome = 'enqueued'
                  AND coalesce(job.status, run.job_status) IN ('DONE', 'DEAD', 'CANCELLED')
                ORDER BY run.scheduled_for DESC
                LIMIT least(greatest(s.pause_after_failures, 0), 1000)) AS last) AS failed ON true
