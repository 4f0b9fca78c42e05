-- Deletes one batch of claims that expired long ago.
WITH old AS MATERIALIZED (
    SELECT claim.id
      FROM django_reliable_jobs_guardclaim AS claim
     WHERE claim.expires_at < statement_timestamp() - make_interval(secs => %(age)s::float8)
     ORDER BY claim.expires_at
     LIMIT %(batch)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM django_reliable_jobs_guardclaim AS claim USING old WHERE claim.id = old.id
