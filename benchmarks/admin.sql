INSERT INTO django_reliable_jobs_worker (id, host, pid, version, queues, slots, busy, stopping, started_at, last_seen)
SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'host-' || n, n, '0.1.0', 'default', 8, 3, false, now(), now()
  FROM generate_series(1, 20) AS n;
INSERT INTO django_reliable_jobs_job (
    id, name, queue, args, kwargs, status, reason, priority, run_at, attempts, max_attempts, losses, timeout, locked_by,
    fencing_token, unique_until_start, idempotency_key, result, created_at, started_at, finished_at)
SELECT n, 'shop.job_' || n % 12, (ARRAY['default', 'mail', 'reports'])[1 + n % 3], jsonb_build_array(n, 'customer ' || n % 977),
       jsonb_build_object('note', repeat('some text ', 1 + (n % 9)::int)),
       CASE WHEN n % 200 = 7 THEN 'DEAD' WHEN n % 40 = 3 THEN 'CANCELLED' ELSE 'DONE' END,
       CASE WHEN n % 200 = 7 THEN 'permanent failure' ELSE '' END, 0,
       now() - (2.01e6 * :scale - n) * interval '0.3 s', 1, 5, 0, 3600,
       ('00000000-0000-0000-0000-' || lpad((1 + n % 20)::text, 12, '0'))::uuid, n, false,
       CASE WHEN n % 100 = 0 THEN 'key-' || n END, '{"ok": true}',
       now() - (2.01e6 * :scale - n) * interval '0.3 s', now() - (2.01e6 * :scale - n) * interval '0.3 s',
       now() - (2.01e6 * :scale - n) * interval '0.3 s' + interval '2 s'
  FROM generate_series(1, (2.01e6 * :scale)::bigint) AS n;
INSERT INTO django_reliable_jobs_job (
    id, name, queue, args, kwargs, status, reason, priority, run_at, attempts, max_attempts, losses, fencing_token,
    unique_until_start, unique_key, created_at)
SELECT (2.01e6 * :scale)::bigint + n, 'shop.job_' || n % 12, (ARRAY['default', 'mail', 'reports'])[1 + n % 3],
       jsonb_build_array(n), '{}', CASE WHEN n % 200 = 0 THEN 'FAILED' ELSE 'QUEUED' END, '', n % 5, now() - n * interval '1 s', 0, 5, 0, 0,
       false, CASE WHEN n % 50 = 0 THEN 'unique-' || n END, now() - n * interval '1 s'
  FROM generate_series(1, (1e5 * :scale)::bigint) AS n;
INSERT INTO django_reliable_jobs_job (
    id, name, queue, args, kwargs, status, reason, priority, run_at, attempts, max_attempts, losses, fencing_token,
    unique_until_start, created_at, started_at, locked_by, locked_until)
SELECT (2.11e6 * :scale)::bigint + n, 'shop.job_' || n % 12, 'default', jsonb_build_array(n), '{}', 'RUNNING', '', 0, now(), 1, 5, 0,
       (2.11e6 * :scale)::bigint + n, false, now(), now(),
       ('00000000-0000-0000-0000-' || lpad((1 + n % 20)::text, 12, '0'))::uuid, now() + interval '1 day'
  FROM generate_series(1, 60) AS n;
INSERT INTO django_reliable_jobs_jobattempt (job_id, fencing_token, attempt, status, reason, finished_at, error_kind, error_message, traceback)
SELECT id, fencing_token, 1, 'DEAD', reason, finished_at, 'ValueError', 'it cannot be', repeat('  File "somewhere.py", line 1, in something' || chr(10), 40)
  FROM django_reliable_jobs_job WHERE status = 'DEAD';
INSERT INTO django_reliable_jobs_cronschedule (
    name, job_name, expression, timezone, args, kwargs, source, misfire, misfire_grace, catch_up_window, catch_up_limit, overlap,
    jitter, paused, broken, version, fired_through, next_fire_at, resumed_at)
SELECT 'schedule-' || n, 'shop.job_1', '@every 1m', 'UTC', '[]', '{}', '', 'latest', 60, 86400, 100, 'allow', 0, false, '', 1,
       now(), now() + interval '1 minute', now()
  FROM generate_series(0, 19) AS n;
INSERT INTO django_reliable_jobs_cronrun (
    name, scheduled_for, outcome, detail, skipped_count, job_id, job_status, job_finished_at, fired_at, manual)
SELECT 'schedule-' || n % 20, now() - (n / 20) * interval '1 minute', CASE WHEN n % 50 = 0 THEN 'skipped_overlap' ELSE 'enqueued' END, '', 0,
       CASE WHEN n % 50 <> 0 AND n <= 1.9e6 * :scale THEN (1.9e6 * :scale)::bigint - n + 1 END,
       CASE WHEN n > 1.9e6 * :scale THEN 'DONE' ELSE '' END, NULL, now() - (n / 20) * interval '1 minute', false
  FROM generate_series(1, (2e6 * :scale)::bigint) AS n;
SELECT setval(pg_get_serial_sequence('django_reliable_jobs_job', 'id'), (SELECT max(id) FROM django_reliable_jobs_job));
ANALYZE;
