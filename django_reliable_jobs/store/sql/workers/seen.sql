-- A worker's sign of life, for people and for prefetching. Brings back how many slots the others have free, and what time it is.
WITH me AS (
    INSERT INTO django_reliable_jobs_worker (
        id, host, pid, version, queues, slots, busy, stopping, release, names_digest, problem, started_at, last_seen)
    VALUES (%(worker)s::uuid, %(host)s, %(pid)s, %(version)s, %(queues)s, %(slots)s, %(busy)s, %(stopping)s,
            %(release)s, %(names_digest)s, %(problem)s, statement_timestamp(), statement_timestamp())
    ON CONFLICT (id) DO UPDATE
       SET busy = excluded.busy, stopping = excluded.stopping, names_digest = excluded.names_digest,
           problem = excluded.problem, last_seen = excluded.last_seen
)
SELECT least(coalesce(sum(greatest(other.slots::bigint - other.busy, 0)), 0), 1000000)::int,
       extract(epoch FROM statement_timestamp())::float8
  FROM django_reliable_jobs_worker AS other
 WHERE other.id <> %(worker)s::uuid AND NOT other.stopping
   AND other.last_seen > statement_timestamp() - make_interval(secs => %(alive)s::float8)
   AND other.last_seen < statement_timestamp() + make_interval(secs => %(alive)s::float8)
