#!/usr/bin/env python
"""Django's commands for the test project. Without DATABASE_URL they bring a PostgreSQL server of their own."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    if sys.argv[1:2] == ["runserver"]:
        os.environ.setdefault("DEBUG", "true")  # The development server shows no static files without it.
    from django.core.management import execute_from_command_line

    from testproject.postgres import default_database

    with default_database(sys.argv):
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
