from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tag", models.CharField(max_length=100)),
                ("step", models.IntegerField(default=0)),
                ("job_id", models.BigIntegerField()),
                ("token", models.BigIntegerField()),
                ("pid", models.IntegerField()),
            ],
        ),
    ]
