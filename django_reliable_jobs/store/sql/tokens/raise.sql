-- Sets the sequence to where no token has been. Under the lock of those who do this; it is not undone by a rollback.
SELECT setval('django_reliable_jobs_fencing_token', %(token)s::bigint)
