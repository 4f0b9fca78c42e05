-- Whether there are schedules that the code of these apps does not define any more.
SELECT EXISTS (SELECT FROM django_reliable_jobs_cronschedule
                WHERE source = ANY (%(sources)s::text[]) AND source <> '' AND NOT (name = ANY (%(names)s::text[])))
