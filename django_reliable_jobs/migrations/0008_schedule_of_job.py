from django.db import migrations, models


class Migration(migrations.Migration):
    """Which schedule enqueued a job, and which workers could not compute a schedule. Older versions write neither."""

    dependencies = [
        ('django_reliable_jobs', '0007_job_calendar'),
    ]

    operations = [
        migrations.AddField(
            model_name='cronschedule',
            name='refused_by',
            field=models.JSONField(blank=True, null=True, verbose_name='workers that could not compute it'),
        ),
        migrations.AddField(
            model_name='job',
            name='schedule',
            field=models.CharField(blank=True, max_length=200, null=True, verbose_name='schedule'),
        ),
    ]
