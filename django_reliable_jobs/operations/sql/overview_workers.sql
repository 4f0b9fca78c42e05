-- The workers' rows, those that were seen within a lease first; `unseen` are the seconds since the last heartbeat.
SELECT id, host, pid, version, queues, slots, busy, stopping, problem, {moment last_seen},
       extract(epoch FROM statement_timestamp() - {moment last_seen})::float8 AS unseen,
       extract(epoch FROM statement_timestamp() - {moment started_at})::float8 AS age
  FROM django_reliable_jobs_worker
 ORDER BY last_seen < statement_timestamp() - make_interval(secs => %(lease)s), host, started_at, pid
 LIMIT %(most)s
