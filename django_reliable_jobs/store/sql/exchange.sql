-- The exchange: what has finished is settled and what may run is claimed, in one statement, one commit, one round trip.
--
-- Settle. `owned` decides: the pair (id, token) with status RUNNING and this worker's id (a sequence that was set back gives a
-- token twice), locked in id order, rows that somebody holds locked
-- skipped (they are offered again in the next round). Whatever is not in `owned` is not written. The token stays in every
-- join: a worker that claimed its own lost job again may offer both of its attempts. A cancel request turns anything but
-- DONE into CANCELLED. What is handed back unbegun loses its `first_started_at` if this claim gave it that: `started_at` is
-- then the same moment.
--
-- Claim. `candidate` reads the claimable-only index once for each (queue, priority) that the worker knows of, so that
-- neither finished, running nor future rows, nor another queue's backlog, cost anything; each is looked at as far as its own
-- `most`, so that rows which somebody holds locked in one hide no other; `since` starts behind the entries
-- that this worker has just claimed (many may share a `run_at`), whose dead versions an open snapshot may keep in the index. `locked` decides: FOR NO
-- KEY UPDATE SKIP LOCKED, conditions checked again on the locked version. It is asked once for all queues without a cap and
-- once for each capped one (a `share`), so that a locked row at its head does not use up a queue's cap. Of the locked rows
-- the first `free` are taken; those beyond are taken ahead of a free slot only up to the first that must not be (a last
-- attempt, or one that was lost before: protocol 8), so that such a row is not passed over for ever. All of them only as long as their payloads
-- have `payload_bytes` at most, the first one for a free slot in any case.
WITH offered AS MATERIALIZED (
    SELECT d.job_id, d.token, 'DONE' AS status, '' AS reason, NULL::float8 AS delay, 0 AS give_back, false AS unbegun,
           NULL::text AS result, NULL::text AS progress, NULL::int AS attempt, NULL::text AS kind,
           NULL::text AS message, NULL::text AS traceback
      FROM unnest(%(done_ids)s::bigint[], %(done_tokens)s::bigint[]) AS d (job_id, token)
     UNION ALL
    SELECT *
      FROM unnest(%(job_ids)s::bigint[], %(tokens)s::bigint[], %(statuses)s::text[], %(reasons)s::text[],
                  %(delays)s::float8[], %(give_backs)s::int[], %(unbeguns)s::bool[],
                  %(results)s::text[], %(progresses)s::text[], %(error_attempts)s::int[], %(error_kinds)s::text[],
                  %(error_messages)s::text[], %(error_tracebacks)s::text[])
), owned AS MATERIALIZED (
    SELECT o.*, job.cancel_requested_at IS NOT NULL AND o.status <> 'DONE' AS cancelled,
           o.status = 'QUEUED' AND o.delay IS NOT NULL AND NOT o.unbegun AS snoozed
      FROM (SELECT * FROM offered ORDER BY job_id) AS o
     CROSS JOIN LATERAL (
        SELECT job.cancel_requested_at
          FROM django_reliable_jobs_job AS job
         WHERE job.status || '' = 'RUNNING' AND job.id = o.job_id AND job.fencing_token = o.token AND job.locked_by = %(worker)s::uuid
           FOR NO KEY UPDATE OF job SKIP LOCKED) AS job
), settled AS (
    UPDATE django_reliable_jobs_job AS job
       SET status = CASE WHEN owned.cancelled THEN 'CANCELLED' ELSE owned.status END,
           reason = CASE WHEN owned.cancelled THEN 'cancel requested' ELSE owned.reason END,
           run_at = coalesce(statement_timestamp() + make_interval(secs => owned.delay), job.run_at),
           attempts = greatest(job.attempts, 1 - 2147483648) - owned.give_back,
           first_started_at = CASE WHEN owned.unbegun THEN nullif(job.first_started_at, job.started_at)
                                   ELSE job.first_started_at END,
           unknown_since = NULL,
           infrastructure_failures = CASE WHEN owned.reason = 'infrastructure' THEN job.infrastructure_failures + 1
                                          WHEN owned.status = 'DONE' OR owned.snoozed THEN 0
                                          ELSE job.infrastructure_failures END,
           result = owned.result::jsonb,
           progress = coalesce(owned.progress::jsonb, job.progress),
           locked_by = CASE WHEN owned.cancelled OR owned.status IN ('DONE', 'DEAD', 'CANCELLED')
                            THEN job.locked_by END,
           locked_until = NULL,
           finished_at = CASE WHEN owned.cancelled OR owned.status IN ('DONE', 'DEAD', 'CANCELLED')
                              THEN statement_timestamp() END
      FROM owned
     WHERE job.id = owned.job_id
 RETURNING job.id, job.status, job.reason, job.fencing_token, {moment job.started_at} AS started_at, owned.attempt, owned.kind, owned.message,
           owned.traceback
), recorded AS (
    INSERT INTO django_reliable_jobs_jobattempt (
        job_id, fencing_token, attempt, status, reason, worker, started_at, finished_at,
        error_kind, error_message, traceback)
    SELECT id, fencing_token, attempt, status, reason, %(worker)s::uuid, started_at, statement_timestamp(), kind, message,
           traceback
      FROM settled
     WHERE kind IS NOT NULL
    ON CONFLICT DO NOTHING
), pair AS MATERIALIZED (
    SELECT p.*
      FROM unnest(%(queues)s::text[], %(priorities)s::int[], %(sinces)s::timestamptz[], %(since_ids)s::bigint[],
                  %(caps)s::int[], %(windows)s::int[])
           WITH ORDINALITY AS p (queue, priority, since, since_id, cap, most, place)
     WHERE NOT EXISTS (
        SELECT FROM django_reliable_jobs_queuestate AS state WHERE state.queue = p.queue AND state.paused)
), candidate AS MATERIALIZED (
    SELECT *
      FROM (
        SELECT c.id, pair.place, pair.priority, c.run_at, pair.cap, CASE WHEN pair.cap IS NOT NULL THEN pair.queue END AS share,
               row_number() OVER (PARTITION BY pair.queue ORDER BY pair.priority DESC, c.run_at, c.id) AS rank
          FROM pair
         CROSS JOIN LATERAL (
            SELECT job.id, job.run_at
              FROM django_reliable_jobs_job AS job
             WHERE job.status IN ('QUEUED', 'FAILED') AND job.queue = pair.queue AND job.priority = pair.priority
               AND (job.run_at, job.id) >= (pair.since, pair.since_id) AND job.run_at <= statement_timestamp()
               AND (job.expires_at IS NULL OR job.expires_at > statement_timestamp()
                    OR job.first_started_at IS NOT NULL OR job.attempts > 0)
               AND job.name <> ALL (%(unknown_names)s::text[])
             ORDER BY job.run_at, job.id
             LIMIT pair.most) AS c
      ) AS found
     WHERE found.cap IS NULL OR found.rank <= found.cap + %(window)s::int - %(free)s::int - %(ahead)s::int
), locked AS MATERIALIZED (
    SELECT mine.*
      FROM (SELECT DISTINCT candidate.share, candidate.cap FROM candidate) AS share
     CROSS JOIN LATERAL (
        SELECT job.id, candidate.priority, candidate.run_at,
               job.losses > 0 OR job.max_attempts::bigint - job.attempts < 2 AS only_when_free,
               {part_payload_bytes}
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
), claimed AS (
    {part_claimed}
)
SELECT (SELECT array_agg(settled.fencing_token) FROM settled), looked.places, looked.counts,
       (SELECT bool_or(ranked.too_much) FROM ranked WHERE ranked.rank <= %(free)s::int + %(ahead)s::int),
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT array_agg(c.place), array_agg(c.count)
          FROM (SELECT place::int, count(*)::int FROM candidate GROUP BY place) AS c (place, count)) AS looked (places, counts)
 UNION ALL
SELECT NULL, NULL, NULL, NULL, claimed.* FROM claimed
