-- Extends all leases of a worker, by (id, token), its id (if it is given) and status: an expired lease that nobody has reaped may still be extended.
-- Brings back which of them somebody asked to cancel. Locked rows are skipped and asked again in the next round.
WITH held AS MATERIALIZED (
    SELECT *
      FROM unnest(%(job_ids)s::bigint[], %(tokens)s::bigint[], %(progresses)s::text[]) AS h (job_id, token, progress)
), owned AS MATERIALIZED (
    SELECT job.id, held.token
      FROM held
      JOIN django_reliable_jobs_job AS job ON job.id = held.job_id AND job.fencing_token = held.token
     WHERE job.status = 'RUNNING' AND job.locked_by IS NOT DISTINCT FROM coalesce(%(worker)s::uuid, job.locked_by)
     ORDER BY job.id
       FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE django_reliable_jobs_job AS job
   SET locked_until = clock_timestamp() + make_interval(secs => %(lease)s::float8),
       progress = coalesce(held.progress::jsonb, job.progress)
  FROM owned
  JOIN held ON held.job_id = owned.id AND held.token = owned.token
 WHERE job.id = owned.id
RETURNING job.id, job.fencing_token, job.cancel_requested_at IS NOT NULL
