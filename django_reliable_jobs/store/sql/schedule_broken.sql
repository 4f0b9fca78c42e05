-- Marks a schedule that cannot be computed, so that it is not tried again until somebody mends it.
UPDATE django_reliable_jobs_cronschedule
   SET broken = %(problem)s::text
 WHERE id = %(id)s AND version = %(version)s AND broken = ''
RETURNING name
