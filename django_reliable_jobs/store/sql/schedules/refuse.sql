-- A worker says that it cannot compute a schedule. When no living worker is left that knows the schedule's job and has not said
-- so of this version, it is marked broken, and nobody tries it any more. A worker that says no names (of an older version of
-- this package) may know any. Somebody has the row locked: no row, and the worker says it again later.
WITH refused AS MATERIALIZED (
    SELECT s.id, s.version, s.job_name, coalesce(s.refused_by, '{}'::jsonb) AS refused_by
      FROM django_reliable_jobs_cronschedule AS s
     WHERE s.id = %(id)s AND s.version = %(version)s AND s.broken = ''
       FOR NO KEY UPDATE OF s SKIP LOCKED
), living AS MATERIALIZED (
    SELECT w.id::text AS id, coalesce(jsonb_exists(known.names, r.job_name), true) AS knows,
           r.refused_by ->> w.id::text IS NOT DISTINCT FROM r.version::text AS refuses
      FROM refused AS r
      JOIN django_reliable_jobs_worker AS w
        ON w.last_seen > statement_timestamp() - make_interval(secs => %(alive)s::float8) AND w.id <> %(worker)s::uuid
      LEFT JOIN django_reliable_jobs_knownnames AS known ON known.digest = w.names_digest
)
UPDATE django_reliable_jobs_cronschedule AS s
   SET refused_by = (SELECT coalesce(jsonb_object_agg(living.id, r.version), '{}'::jsonb) FROM living WHERE living.refuses)
                    || jsonb_build_object(%(worker)s::uuid::text, r.version),
       broken = CASE WHEN EXISTS (SELECT FROM living WHERE living.knows AND NOT living.refuses) THEN ''
                     ELSE %(problem)s::text END
  FROM refused AS r
 WHERE s.id = r.id
RETURNING s.broken <> ''
