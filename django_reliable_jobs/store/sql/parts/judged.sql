-- The names that are judged: met so long ago, and known by no worker that was seen in that time. While a worker lives that may
-- know any name (an older version, which says nothing; a digest whose names are not written down yet), none is. A part.
SELECT unknown.name
  FROM django_reliable_jobs_unknownname AS unknown
 WHERE unknown.met_at <= statement_timestamp() - make_interval(secs => %(after)s::float8)
   AND NOT EXISTS (
    SELECT FROM django_reliable_jobs_worker AS worker
      LEFT JOIN django_reliable_jobs_knownnames AS known ON known.digest = worker.names_digest
     WHERE worker.last_seen > statement_timestamp()
                              - make_interval(secs => CASE WHEN known.digest IS NULL THEN %(alive)s::float8
                                                           ELSE greatest(%(after)s::float8, %(alive)s::float8) END)
       AND (known.digest IS NULL OR known.names ? unknown.name))
