-- For this transaction: whoever gets the lock keeps the rows in step with the code; the others come back later. A process
-- that is stopped while it has the lock loses it after `idle` milliseconds, and no row is waited for longer than `patience`.
SELECT pg_try_advisory_xact_lock(hashtextextended('django_reliable_jobs.schedules', 0)),
       set_config('idle_in_transaction_session_timeout', %(idle)s::text, true),
       set_config('lock_timeout', %(patience)s::text, true)
