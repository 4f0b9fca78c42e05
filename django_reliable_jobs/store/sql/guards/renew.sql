-- Gives a lease that is still held a new end; `done` ends it as a lease, so that a renewal under way is refused.
UPDATE django_reliable_jobs_guardclaim AS claim
   SET expires_at = coalesce(to_timestamp(%(until)s::float8), clock_timestamp() + make_interval(secs => %(ttl)s::float8)),
       done = %(done)s
 WHERE claim.key = %(key)s AND claim.fencing_token = %(token)s AND NOT claim.done
   AND (claim.expires_at > clock_timestamp()) IS NOT FALSE
