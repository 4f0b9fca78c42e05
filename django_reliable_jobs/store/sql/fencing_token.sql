-- Fresh tokens from the one sequence that all of them come from.
SELECT nextval('django_reliable_jobs_fencing_token') FROM generate_series(1, %(count)s)
