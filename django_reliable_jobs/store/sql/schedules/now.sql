-- The database's clock, exactly.
SELECT extract(epoch FROM statement_timestamp())
