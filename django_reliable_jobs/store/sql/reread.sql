-- Where the pairs stand that an exchange or a heartbeat did not bring back.
SELECT job.id, job.fencing_token, job.status, EXISTS (
           SELECT FROM django_reliable_jobs_jobattempt AS attempt
            WHERE attempt.job_id = job.id AND attempt.fencing_token = job.fencing_token AND attempt.reason = 'lost'),
       job.locked_by IS DISTINCT FROM coalesce(%(worker)s::uuid, job.locked_by)
  FROM django_reliable_jobs_job AS job
 WHERE job.id = ANY (%(job_ids)s::bigint[])
