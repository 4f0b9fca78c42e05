from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class IndexWhereThereIsOne(AddIndexConcurrently):
    """SQLite knows no CONCURRENTLY."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("depot", "0003_weigh")]
    operations = [IndexWhereThereIsOne("crate", models.Index(fields=["weight"], name="depot_crate_weight"))]
