-- An operator's retry: from the beginning, at once, with all its attempts. The status decides on the locked row.
UPDATE django_reliable_jobs_job AS job
   SET status = 'QUEUED', reason = '', run_at = statement_timestamp(), attempts = 0, losses = 0, infrastructure_failures = 0,
       expires_at = NULL, cancel_requested_at = NULL, unknown_since = NULL, locked_by = NULL, result = NULL,
       progress = NULL, finished_at = NULL
 WHERE job.id = %(job_id)s AND job.status IN ('DEAD', 'FAILED', 'CANCELLED')
RETURNING job.id, job.queue, job.priority
