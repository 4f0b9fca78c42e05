-- For this transaction: how long a statement waits for a row that somebody has locked, in milliseconds.
SELECT set_config('lock_timeout', %(patience)s::text, true)
