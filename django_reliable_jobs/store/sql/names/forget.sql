-- A worker that knows the name lives (again).
DELETE FROM django_reliable_jobs_unknownname AS unknown
 WHERE EXISTS (
    SELECT FROM django_reliable_jobs_worker AS worker
      JOIN django_reliable_jobs_knownnames AS known ON known.digest = worker.names_digest
     WHERE worker.last_seen > statement_timestamp() - make_interval(secs => %(alive)s::float8)
       AND known.names ? unknown.name)
