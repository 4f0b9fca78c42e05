-- Pauses or resumes a queue for the whole fleet; nothing comes back when it was so already.
INSERT INTO django_reliable_jobs_queuestate AS queuestate (queue, paused, changed_at)
SELECT %(queue)s, %(paused)s, statement_timestamp()
 WHERE %(paused)s OR EXISTS (SELECT FROM django_reliable_jobs_queuestate AS known WHERE known.queue = %(queue)s)
ON CONFLICT (queue) DO UPDATE
   SET paused = excluded.paused, changed_at = excluded.changed_at
 WHERE queuestate.paused IS DISTINCT FROM excluded.paused
RETURNING queue
