-- Pauses or resumes. A resumed schedule never catches up on the time of its pause, and its failures count from then on;
-- a fire time that waited when it was paused is not made up for.
WITH changed AS (
    SELECT id, name, waiting_for
      FROM django_reliable_jobs_cronschedule
     WHERE name = %(name)s::text AND version = %(version)s AND paused <> %(paused)s::bool
       FOR NO KEY UPDATE
), dropped AS (
    INSERT INTO django_reliable_jobs_cronrun (
        name, scheduled_for, outcome, detail, skipped_through, skipped_count, job_status, fired_at, manual)
    SELECT name, waiting_for, 'skipped_overlap', 'the schedule was paused while it waited', waiting_for, 1, '',
           statement_timestamp(), false
      FROM changed
     WHERE waiting_for IS NOT NULL
    ON CONFLICT DO NOTHING
)
UPDATE django_reliable_jobs_cronschedule AS s
   SET paused = %(paused)s::bool, version = CASE WHEN s.version = 2147483647 THEN 1 ELSE s.version + 1 END, waiting_for = NULL,
       fired_through = CASE WHEN %(paused)s::bool THEN s.fired_through
                            WHEN isfinite(s.fired_through) THEN greatest(s.fired_through, %(now)s::timestamptz)
                            ELSE %(now)s::timestamptz END,
       next_fire_at = CASE WHEN %(paused)s::bool THEN s.next_fire_at ELSE %(next_fire)s::timestamptz END,
       resumed_at = CASE WHEN %(paused)s::bool THEN s.resumed_at ELSE %(now)s::timestamptz END
  FROM changed
 WHERE s.id = changed.id
RETURNING s.id
