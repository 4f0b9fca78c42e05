-- One schedule, whatever its state is, at the database's time.
SELECT extract(epoch FROM statement_timestamp()),
       s.id, s.name, s.job_name, s.expression, s.timezone, s.args::text, s.kwargs::text, s.source, s.misfire,
       s.misfire_grace, s.catch_up_window, s.catch_up_limit, s.overlap, s.jitter, extract(epoch FROM s.starts_at),
       extract(epoch FROM s.ends_at), s.pause_after_failures, s.version, extract(epoch FROM s.fired_through),
       extract(epoch FROM s.waiting_for)
  FROM django_reliable_jobs_cronschedule AS s
 WHERE s.name = %(name)s::text
