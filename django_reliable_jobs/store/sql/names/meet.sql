-- Names in rows that a worker does not know, and no other living one either: from now on they are unknown.
INSERT INTO django_reliable_jobs_unknownname (name, met_at)
SELECT met.name, statement_timestamp()
  FROM unnest(%(names)s::text[]) AS met (name)
 WHERE NOT EXISTS (
    SELECT FROM django_reliable_jobs_worker AS worker
      JOIN django_reliable_jobs_knownnames AS known ON known.digest = worker.names_digest
     WHERE worker.last_seen > statement_timestamp() - make_interval(secs => %(alive)s::float8)
       AND known.names ? met.name)
ON CONFLICT DO NOTHING
