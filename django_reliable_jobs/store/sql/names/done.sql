-- Names of which no job is left.
DELETE FROM django_reliable_jobs_unknownname WHERE name = ANY (%(names)s::text[])
