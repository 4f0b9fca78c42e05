-- Digests that no worker's row has, and that nobody has used for long.
DELETE FROM django_reliable_jobs_knownnames AS known
 WHERE known.seen_at < statement_timestamp() - make_interval(secs => %(age)s::float8)
   AND NOT EXISTS (SELECT FROM django_reliable_jobs_worker AS worker WHERE worker.names_digest = known.digest)
