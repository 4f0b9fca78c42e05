from django.db import migrations

from django_reliable_jobs.migrations._operations import RemoveIndexOnline, RemoveUniqueOnline


class Migration(migrations.Migration):
    """From here on two jobs may use the same text as a key, so it cannot be undone once two do."""

    atomic = False

    dependencies = [
        ('django_reliable_jobs', '0010_keys_of_a_job'),
    ]

    operations = [
        RemoveUniqueOnline(model_name='job', name='reliable_jobs_unique_key'),
        RemoveUniqueOnline(model_name='job', name='reliable_jobs_idempotency_key'),
        RemoveIndexOnline(model_name='job', name='reliable_jobs_expiry'),
    ]
