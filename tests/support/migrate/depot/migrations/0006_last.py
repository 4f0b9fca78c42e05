from django.db import migrations

from tests.support.migrate.depot import steps


class Migration(migrations.Migration):
    dependencies = [("depot", "0005_fifth")]
    operations = [migrations.RunPython(steps.last, migrations.RunPython.noop)]
