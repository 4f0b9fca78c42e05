-- What a claim makes of the rows that were `taken`, and what it tells of them. A part of the statements that claim. What raw
-- SQL has written into a row is brought into range: it must not keep the other rows of the claim from being taken.
   UPDATE django_reliable_jobs_job AS job
      SET status = 'RUNNING',
          reason = '',
          locked_by = %(worker)s::uuid,
          locked_until = clock_timestamp() + make_interval(secs => %(lease)s::float8),
          started_at = statement_timestamp(),
          first_started_at = coalesce(job.first_started_at, statement_timestamp()),
          finished_at = NULL,
          attempts = least(job.attempts, 2147483646) + 1,
          fencing_token = nextval('django_reliable_jobs_fencing_token'),
          unique_key = CASE WHEN job.unique_until_start THEN NULL ELSE job.unique_key END,
          progress = NULL
     FROM taken
    WHERE job.id = taken.id
RETURNING job.id, job.fencing_token, job.name, job.queue, job.priority, job.args, job.kwargs, job.attempts,
          job.max_attempts, job.losses,
          CASE WHEN job.timeout < 0 THEN 0 WHEN job.timeout > 315360000 THEN 315360000 ELSE job.timeout END,
          job.idempotency_key,
          {moment job.scheduled_for} AT TIME ZONE 'UTC', {moment job.run_at} AT TIME ZONE 'UTC',
          CASE WHEN job.first_started_at = job.started_at AND job.attempts = 1
               THEN extract(epoch FROM {moment job.expires_at} - statement_timestamp())::float8 END,
          job.infrastructure_failures
