-- Makes these versions the current ones of their apps.
INSERT INTO django_reliable_jobs_schedulerelease AS r (source, fingerprint, activated_at, seen_at, seen_since)
SELECT m.source, m.fingerprint, clock_timestamp(), clock_timestamp(), clock_timestamp()
  FROM unnest(%(sources)s::text[], %(fingerprints)s::text[]) AS m (source, fingerprint)
ON CONFLICT (source, fingerprint) DO UPDATE SET activated_at = excluded.activated_at, seen_at = excluded.seen_at
