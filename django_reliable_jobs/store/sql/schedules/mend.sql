-- Not broken: the worker that says so can compute it. What was missed meanwhile is made up for as the schedule says.
UPDATE django_reliable_jobs_cronschedule
   SET broken = '', next_fire_at = coalesce(next_fire_at, statement_timestamp())
 WHERE id = %(id)s AND version = %(version)s AND broken <> ''
RETURNING name
