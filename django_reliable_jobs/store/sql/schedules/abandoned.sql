-- Sets of schedules that these apps had under another RELEASE, or under none, and whose workers were not seen for so long.
SELECT DISTINCT s.source
  FROM django_reliable_jobs_cronschedule AS s
 WHERE s.source <> '' AND split_part(s.source, '@', 1) = ANY (%(apps)s::text[]) AND NOT s.source = ANY (%(sources)s::text[])
   AND NOT EXISTS (
    SELECT FROM django_reliable_jobs_schedulerelease AS r
     WHERE r.source = s.source AND r.seen_at > statement_timestamp() - make_interval(secs => %(age)s::float8))
