from django.db import migrations

from tests.support.migrate.depot import steps


class Migration(migrations.Migration):
    dependencies = [("depot", "0004_index")]
    operations = [migrations.RunPython(steps.fifth, migrations.RunPython.noop)]
