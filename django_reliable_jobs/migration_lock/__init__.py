"""Every replica may run `migrate`: one does, the others wait, and then find nothing to do."""

from django_reliable_jobs.migration_lock.command import EXIT_LOCK_TIMEOUT, EXIT_TERMINATED, MigrationLockMixin
from django_reliable_jobs.migration_lock.lock import MigrationLock, lock_status, migration_lock
from django_reliable_jobs.migration_lock.pending import pending_migrations

__all__ = [
    "EXIT_LOCK_TIMEOUT",
    "EXIT_TERMINATED",
    "MigrationLock",
    "MigrationLockMixin",
    "lock_status",
    "migration_lock",
    "pending_migrations",
]
