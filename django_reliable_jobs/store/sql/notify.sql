-- Wakes idle workers; run after the commit and in a transaction of its own (protocol 11).
SELECT pg_notify('django_reliable_jobs', payload) FROM unnest(%(payloads)s::text[]) AS payload
