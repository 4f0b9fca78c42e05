-- Takes the rows of workers away that have ended in order (given ids) or were not seen for long.
DELETE FROM django_reliable_jobs_worker
 WHERE id = ANY (%(workers)s::uuid[])
    OR last_seen < statement_timestamp() - make_interval(secs => %(age)s::float8)
