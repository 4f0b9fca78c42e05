-- Jobs of schedules that are overdue, and that this process does not know: nobody else does either, it seems.
SELECT DISTINCT s.job_name
  FROM django_reliable_jobs_cronschedule AS s
 WHERE NOT s.paused AND s.broken = ''
   AND s.next_fire_at < statement_timestamp() - make_interval(secs => %(overdue)s::float8)
   AND NOT (s.job_name = ANY (%(known)s::text[]))
 LIMIT 20
