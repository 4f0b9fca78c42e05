-- The names that a digest stands for.
INSERT INTO django_reliable_jobs_knownnames (digest, names, seen_at)
VALUES (%(digest)s, %(names)s::jsonb, statement_timestamp())
ON CONFLICT DO NOTHING
