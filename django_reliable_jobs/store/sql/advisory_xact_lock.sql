-- Until the end of the transaction. The key is hashed in the database, so that every caller gets the same number.
SELECT pg_advisory_xact_lock(hashtextextended(%(key)s, 0))
