"""`manage.py migrate`: Django's own, under a lock, so that every replica may run it at once."""

from django.core.management.commands.migrate import Command as DjangoCommand

from django_reliable_jobs.migration_lock import MigrationLockMixin


class Command(MigrationLockMixin, DjangoCommand):
    pass
