from django.db import migrations, models
from django.db.models.functions import Coalesce

from django_reliable_jobs.migrations._operations import AddIndexOnline


class Migration(migrations.Migration):
    """Indexes, built while others write. `reliable_jobs_scheduled` stays for workers of older versions."""

    atomic = False

    dependencies = [
        ('django_reliable_jobs', '0008_schedule_of_job'),
    ]

    operations = [
        AddIndexOnline(
            model_name='cronschedule',
            index=models.Index(condition=models.Q(('broken', ''), _negated=True), fields=['id'], name='reliable_jobs_broken'),
        ),
        AddIndexOnline(
            model_name='job',
            index=models.Index(Coalesce(models.F('schedule'), models.Value('')), models.F('id'), condition=models.Q(('scheduled_for__isnull', False), ('status__in', ['QUEUED', 'RUNNING', 'FAILED'])), name='reliable_jobs_of_schedule'),
        ),
    ]
