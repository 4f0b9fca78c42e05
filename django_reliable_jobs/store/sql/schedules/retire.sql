-- Takes away the schedules that the code of these apps does not define any more, or one by its name. Their runs
-- stay, and so does the pause of those in code: it belongs to the name.
WITH gone AS (
    DELETE FROM django_reliable_jobs_cronschedule
     WHERE (source = ANY (%(sources)s::text[]) AND source <> '' AND NOT (name = ANY (%(names)s::text[])))
        OR name = %(name)s::text
    RETURNING name, waiting_for, paused
), dropped AS (
    INSERT INTO django_reliable_jobs_cronrun (
        name, scheduled_for, outcome, detail, skipped_through, skipped_count, job_status, fired_at, manual)
    SELECT name, waiting_for, 'skipped_overlap', 'the schedule was taken away while it waited', waiting_for, 1, '',
           statement_timestamp(), false
      FROM gone
     WHERE waiting_for IS NOT NULL
    ON CONFLICT DO NOTHING
), kept AS (
    INSERT INTO django_reliable_jobs_schedulepause (name, paused_at)
    SELECT name, statement_timestamp() FROM gone WHERE paused AND %(name)s::text IS NULL
    ON CONFLICT DO NOTHING
)
SELECT name, paused FROM gone ORDER BY name
