-- Claim. `locked` decides: FOR NO
-- KEY UPDATE SKIP LOCKED, conditions checked again on the locked version. It is asked once for all queues without a cap and
-- once for each capped one (a `share`), so that a locked row at its head does not use up a queue's cap. Of the locked rows
-- the first `free` are taken; those beyond are taken ahead of a free slot only up to the first that must not be (a last
-- attempt, or one that was lost before: protocol 8), so that such a row is not passed over for ever. All of them only as long as their payloads
-- have `payload_bytes` at most, the first one for a free slot in any case.
), locked AS MATERIALIZED (
    SELECT mine.*
      FROM (SELECT DISTINCT candidate.share, candidate.cap FROM candidate) AS share
     CROSS JOIN LATERAL (
        SELECT job.id, candidate.priority, candidate.run_at,
               job.losses > 0 OR job.max_attempts::bigint - job.attempts < 2 AS only_when_free,
               {parts/payload_bytes}
          FROM candidate
          JOIN django_reliable_jobs_job AS job ON job.id = candidate.id
         WHERE candidate.share IS NOT DISTINCT FROM share.share
           AND job.status || '' IN ('QUEUED', 'FAILED') AND job.run_at <= statement_timestamp()
         ORDER BY candidate.priority DESC, candidate.run_at, candidate.id
         LIMIT least(share.cap, %(free)s::int + %(ahead)s::int)
           FOR NO KEY UPDATE OF job SKIP LOCKED) AS mine
), ranked AS (
    SELECT id, row_number() OVER in_order AS rank, coalesce(only_when_free, false) AS only_when_free,
           sum(payload_bytes) OVER in_order > %(payload_bytes)s::bigint AS too_much
      FROM locked
    WINDOW in_order AS (ORDER BY priority DESC, run_at, id ROWS UNBOUNDED PRECEDING)
), taken AS MATERIALIZED (
    SELECT id
      FROM ranked
     WHERE (NOT too_much OR rank = 1 AND %(free)s::int > 0)
       AND (rank <= %(free)s::int
            OR rank < coalesce((SELECT min(r.rank) FROM ranked AS r WHERE r.only_when_free AND r.rank > %(free)s::int),
                               %(free)s::int + %(ahead)s::int + 1))
