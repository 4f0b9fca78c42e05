-- Settle. `owned` decides: the pair (id, token) with status RUNNING and this worker's id (a sequence that was set back gives a
-- token twice), locked in id order, rows that somebody holds locked
-- skipped (they are offered again in the next round). Whatever is not in `owned` is not written. The token stays in every
-- join: a worker that claimed its own lost job again may offer both of its attempts. A cancel request turns anything but
-- DONE into CANCELLED. What is handed back unbegun loses its `first_started_at` if this claim gave it that: `started_at` is
-- then the same moment.
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
