-- For this transaction: so many milliseconds for each statement, and between two of them.
SELECT set_config('statement_timeout', %(milliseconds)s::text, true),
       set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)
