-- Whether it is written down what this digest stands for; that it is in use, every few minutes.
WITH used AS (
    UPDATE django_reliable_jobs_knownnames
       SET seen_at = statement_timestamp()
     WHERE digest = %(digest)s AND seen_at < statement_timestamp() - interval '5 minutes'
)
SELECT EXISTS (SELECT FROM django_reliable_jobs_knownnames WHERE digest = %(digest)s)
