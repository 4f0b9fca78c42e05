from django.db import migrations, models
from django.db.models.functions import Coalesce

from django_reliable_jobs.migrations._operations import AddIndexOnline, AddUniqueOnline


class Migration(migrations.Migration):
    """What the next one drops stays beside it: the code before has its keys and its expiry served by that."""

    atomic = False

    dependencies = [
        ('django_reliable_jobs', '0009_schedule_indexes'),
    ]

    operations = [
        AddUniqueOnline(
            model_name='job',
            constraint=models.UniqueConstraint(models.F('unique_key'), Coalesce('scope', 'name'), condition=models.Q(('cancel_requested_at__isnull', True), ('status__in', ['QUEUED', 'RUNNING', 'FAILED']), ('unique_key__isnull', False)), name='reliable_jobs_unique_scope'),
        ),
        AddUniqueOnline(
            model_name='job',
            constraint=models.UniqueConstraint(models.F('idempotency_key'), Coalesce('scope', 'name'), condition=models.Q(('idempotency_key__isnull', False)), name='reliable_jobs_idempotency_scope'),
        ),
        AddIndexOnline(
            model_name='job',
            index=models.Index(condition=models.Q(('expires_at__isnull', False), ('first_started_at__isnull', True), ('status__in', ['QUEUED', 'FAILED'])), fields=['expires_at'], name='reliable_jobs_unbegun'),
        ),
    ]
