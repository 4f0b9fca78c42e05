-- For this transaction only: a process that is stopped inside it cannot hold its row locks for longer.
SELECT set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)
