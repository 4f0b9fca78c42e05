from django.db import migrations

from tests.support.migrate.depot import steps


class Migration(migrations.Migration):
    dependencies = [("depot", "0001_initial")]
    operations = [migrations.RunPython(steps.fill, migrations.RunPython.noop)]
