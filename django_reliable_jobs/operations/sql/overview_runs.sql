-- The last runs of some schedules, the newest first, each with its job's status: now, or as it was when the row went.
SELECT run.name, run.id, {moment run.scheduled_for}, {moment run.fired_at}, run.outcome, run.skipped_count,
       coalesce((SELECT job.status FROM django_reliable_jobs_job AS job WHERE job.id = run.job_id), run.job_status)
  FROM unnest(%(names)s::text[]) AS schedule (name)
 CROSS JOIN LATERAL (
    SELECT *
      FROM django_reliable_jobs_cronrun
     WHERE name = schedule.name
     ORDER BY scheduled_for DESC
     LIMIT %(runs)s) AS run
 ORDER BY run.name, run.scheduled_for DESC
