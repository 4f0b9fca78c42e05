-- The database's clock, and how much of the slice of time that is not over has passed, in seconds.
SELECT statement_timestamp(),
       extract(epoch FROM statement_timestamp())::float8
       - floor(extract(epoch FROM statement_timestamp()) / %(width)s)::float8 * %(width)s
