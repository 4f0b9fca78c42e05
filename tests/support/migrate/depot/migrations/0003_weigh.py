from django.db import migrations

from tests.support.migrate.depot import steps


class Migration(migrations.Migration):
    dependencies = [("depot", "0002_fill")]
    operations = [migrations.RunPython(steps.weigh, migrations.RunPython.noop)]
