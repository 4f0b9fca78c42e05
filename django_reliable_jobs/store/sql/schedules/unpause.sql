-- Forgets the pause of a schedule that is not defined now.
DELETE FROM django_reliable_jobs_schedulepause WHERE name = %(name)s::text
