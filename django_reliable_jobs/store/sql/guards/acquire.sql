-- Claims a guard key that is free: never claimed, released, or expired by the database's clock.
--
-- `free` takes over a row, `fresh` makes one; both wait for a rival's open transaction, and neither locks a row that it
-- does not take. A claim of the same owner counts as free: it is this call's own, whose answer was lost.
-- Refused without a claim that this statement could see (a rival committed meanwhile) or granted for a time that has
-- passed while it waited: `certain` is false, and the caller asks again.
-- The token and the end are computed anew for a row that somebody has changed while this statement waited for it.
WITH free AS (
    UPDATE django_reliable_jobs_guardclaim AS claim
       SET owner = %(owner)s, fencing_token = nextval('django_reliable_jobs_fencing_token'), done = false,
           claimed_at = clock_timestamp(),
           expires_at = coalesce(to_timestamp(%(until)s::float8), clock_timestamp() + make_interval(secs => %(ttl)s::float8))
     WHERE claim.key = %(key)s AND (claim.owner = %(owner)s OR claim.expires_at <= clock_timestamp())
       AND (to_timestamp(%(until)s::float8) > clock_timestamp()) IS NOT FALSE
 RETURNING claim.fencing_token, claim.expires_at
), fresh AS (
    INSERT INTO django_reliable_jobs_guardclaim (key, owner, fencing_token, done, claimed_at, expires_at)
    SELECT %(key)s, %(owner)s, nextval('django_reliable_jobs_fencing_token'), false, clock_timestamp(),
           coalesce(to_timestamp(%(until)s::float8), clock_timestamp() + make_interval(secs => %(ttl)s::float8))
     WHERE NOT EXISTS (SELECT FROM free) AND (to_timestamp(%(until)s::float8) > clock_timestamp()) IS NOT FALSE
        ON CONFLICT (key) DO NOTHING
 RETURNING fencing_token, expires_at
), granted AS (
    SELECT * FROM free UNION ALL SELECT * FROM fresh
)
SELECT fencing_token, (expires_at > clock_timestamp()) IS NOT FALSE AS certain FROM granted
UNION ALL
SELECT NULL,
       (to_timestamp(%(until)s::float8) <= clock_timestamp()) IS TRUE
       OR EXISTS (SELECT FROM django_reliable_jobs_guardclaim AS claim
                   WHERE claim.key = %(key)s AND (claim.expires_at > clock_timestamp()) IS NOT FALSE)
 WHERE NOT EXISTS (SELECT FROM granted)
