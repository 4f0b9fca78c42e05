-- Frees a key, if the claim with this token still holds it. The row stays: the key's next token is greater.
UPDATE django_reliable_jobs_guardclaim AS claim
   SET expires_at = clock_timestamp()
 WHERE claim.key = %(key)s AND claim.fencing_token = %(token)s AND NOT claim.done
   AND (claim.expires_at > clock_timestamp()) IS NOT FALSE
