-- Some schedules of people that are marked broken and whose job is known here: another host may have marked them.
SELECT s.name
  FROM django_reliable_jobs_cronschedule AS s
 WHERE s.broken <> '' AND s.source = '' AND NOT s.paused AND s.job_name = ANY (%(known)s::text[])
 ORDER BY random()
 LIMIT 50
