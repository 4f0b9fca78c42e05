"""`MigrationLockMixin`: a `migrate` command that only one process at a time runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_reliable_jobs.errors import MigrationLockLost, MigrationLockTimeout
from django_reliable_jobs.migration_lock.databases.run_connection import run_connection
from django_reliable_jobs.migration_lock.indexes.adopt import adopt_finished
from django_reliable_jobs.migration_lock.indexes.invalid import invalid_indexes, remove_half_built
from django_reliable_jobs.migration_lock.lock import MigrationLock, lock_status, migration_lock
from django_reliable_jobs.migration_lock.target import target_for
from django_reliable_jobs.values.durations import seconds

#: Exit status when the lock was not to be had in time (EX_TEMPFAIL of sysexits.h: try again later). Nothing changed.
EXIT_LOCK_TIMEOUT = 75
#: Exit status after SIGTERM, as a shell would report it.
EXIT_TERMINATED = 128 + signal.SIGTERM

#: SQLSTATE -> the setting of the role, the database or the connection that ended a statement.
_ENDED_BY = {"55P03": "lock_timeout", "57014": "statement_timeout"}


_before_the_lock: ContextVar[bool] = ContextVar("django_reliable_jobs_before_the_lock", default=False)


def checks_before_the_lock() -> bool:
    """Whether the system checks of a `migrate` are running, which has no lock yet."""
    return _before_the_lock.get()


class MigrationLockMixin(BaseCommand):
    """Goes before a command that is, or derives from, Django's `migrate`:

        class Command(MigrationLockMixin, TheOtherMigrate):
            pass

    Everything that the wrapped command does happens under the lock. What only reads (--plan, --check) takes none.
    """

    _lock: MigrationLock | None = None
    _connection: BaseDatabaseWrapper

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        group = parser.add_argument_group("migration lock")
        group.add_argument(
            "--lock-timeout", type=float, metavar="SECONDS",
            help="How long to wait while another process migrates this database; 0 waits for ever. The default is"
            f' RELIABLE_JOBS["MIGRATE"]["LOCK_TIMEOUT"]. When the time is up the exit status is {EXIT_LOCK_TIMEOUT}.',
        )  # fmt: skip
        group.add_argument("--no-lock", action="store_true", help="Migrate without the lock.")
        group.add_argument("--lock-status", action="store_true", help="Say who holds the lock, and do nothing else.")

    def check(self, *args: Any, **kwargs: Any) -> None:
        """System checks come before the lock: what asks the tables would wait where the wait has no limit."""
        token = _before_the_lock.set(True)
        try:
            super().check(*args, **kwargs)
        finally:
            _before_the_lock.reset(token)

    def handle(self, *args: Any, **options: Any) -> str | None:
        reads_only = (options["plan"] or options["check_unapplied"]) and not options["prune"]
        try:
            if options.get("lock_status"):
                return lock_status(options["database"])
            with _exit_on_sigterm(), self._holding(None if reads_only else options) as lock:
                with run_connection(target_for(options["database"]), lock.backend if lock else None):
                    return self._watched(reads_only, *args, **options)
        except MigrationLockTimeout as error:
            raise CommandError(str(error), returncode=EXIT_LOCK_TIMEOUT) from error
        except (MigrationLockLost, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error

    @contextmanager
    def _holding(self, options: dict[str, Any] | None) -> Iterator[MigrationLock | None]:
        if options is None or options.get("no_lock"):
            yield None
            return
        report = self._say if options["verbosity"] > 0 else _nothing
        timeout = options.get("lock_timeout")
        try:
            timeout = None if timeout is None else seconds(timeout, "--lock-timeout")
        except (TypeError, ValueError) as error:
            raise CommandError(str(error)) from error
        with migration_lock(options["database"], timeout=timeout, report=report) as self._lock:
            try:
                yield self._lock
            finally:
                self._lock = None

    def _watched(self, reads_only: bool, *args: Any, **options: Any) -> str | None:
        """Run the wrapped command, and afterwards tell of what it may have left behind."""
        connection = self._connection = connections[options["database"]]
        all_applied = False
        try:
            output: str | None = super().handle(*args, **options)
            all_applied = not options["app_label"]
        except DatabaseError as error:
            self._explain(error, connection)
            raise
        finally:
            # A connection that is gone is not made again: the network may be what is wrong.
            if connection.vendor == "postgresql" and not reads_only and connection.connection is not None:
                self._tell_of_invalid_indexes(connection, all_applied)
        return output

    def migration_progress_callback(self, action: str, migration: Any = None, fake: bool = False) -> None:
        """Between two migrations: nothing further is started without the lock."""
        starts = action in ("apply_start", "unapply_start")
        if starts:
            self._check_lock()
            if self._lock is not None and not fake and self._connection.vendor == "postgresql":
                backwards = action == "unapply_start"
                for index in remove_half_built(self._connection, migration, backwards=backwards):
                    self._say(f"Removed {index}, which an interrupted run has left half built, to build it again.")
                for index in [] if backwards else adopt_finished(self._connection, migration):
                    self._say(
                        f"The index {index} is there as {migration} builds it: an interrupted run has got so far."
                    )
        super().migration_progress_callback(action, migration, fake)  # type: ignore[misc]
        if not starts and migration is not None:
            self._check_lock()

    def sync_apps(self, connection: BaseDatabaseWrapper, app_labels: Any) -> None:
        self._check_lock()
        super().sync_apps(connection, app_labels)  # type: ignore[misc]

    def _check_lock(self) -> None:
        if self._lock is not None:
            self._lock.check()

    def _tell_of_invalid_indexes(self, connection: BaseDatabaseWrapper, all_applied: bool) -> None:
        try:
            for index in invalid_indexes(connection):
                self._say(index.advice(all_applied=all_applied))
        except Error:
            pass  # The run has ended with an error of its own, which says more.

    def _explain(self, error: DatabaseError, connection: BaseDatabaseWrapper) -> None:
        setting = _ENDED_BY.get(getattr(error.__cause__, "sqlstate", ""))
        if setting is None:
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT current_setting(%s)", [setting])
                value = cursor.fetchone()[0]
        except Error:
            return
        if value != "0":
            self._say(f"{setting} is {value} on this connection: it may be too short for this migration.")

    def _say(self, line: str) -> None:
        self.stderr.write(line, lambda text: text)


def _nothing(line: str) -> None:
    pass


class _Terminated(KeyboardInterrupt):
    """SIGTERM. As a KeyboardInterrupt it makes psycopg cancel the statement that is under way."""


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Unwind on SIGTERM, so that the server ends the statement and the lock is free at once; then exit.

    A handler of somebody else's is left alone, and other threads than the main one cannot have any.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return

    told: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except BaseException as error:
        # With a network that stands still the unwinding ends with an error of its own; why it ends is the signal.
        if not told:
            raise
        sys.stderr.write(f"\nStopped by SIGTERM.{'' if isinstance(error, _Terminated) else f' ({error})'}\n")
        raise SystemExit(EXIT_TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
