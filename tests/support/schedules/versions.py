"""Workers with versions of the code of their own, for tests of how rows follow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from django_reliable_jobs import job
from django_reliable_jobs.definitions import schedule as schedule_definitions
from django_reliable_jobs.definitions.schedule import ScheduleDefinition, cron
from django_reliable_jobs.models import CronSchedule, ScheduleRelease
from django_reliable_jobs.worker.maintenance import schedule_sync
from django_reliable_jobs.worker.maintenance.schedule_sync import EVERY, ScheduleSync


@job(name="tests.synced")
def synced(number: int = 0) -> None: ...


@job(name="tests.synced_too")
def synced_too() -> None: ...


class Monotonic:
    """This process' monotonic clock, for the syncs of several "processes"."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    made = Monotonic()
    monkeypatch.setattr(schedule_sync.time, "monotonic", made)
    return made


class Worker:
    """A worker with its own version of the code: `schedules` by name, each with its expression; all from one app."""

    def __init__(self, source: str = "shop", installed: tuple[str, ...] = ("shop",), **schedules: str) -> None:
        self.sync = ScheduleSync("default")
        self.source, self.installed, self.schedules = source, installed, schedules

    def look(self) -> bool:
        with self.code():
            return self.sync.look()

    @contextmanager
    def code(self) -> Iterator[None]:
        """What stands in the code of this "process"."""
        found: dict[str, ScheduleDefinition] = {}
        apps = [type("Config", (), {"label": label}) for label in self.installed]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schedule_definitions, "_by_name", found)
            patch.setattr(schedule_definitions, "source_of", lambda job: self.source)
            patch.setattr(schedule_sync.apps, "get_app_configs", lambda: apps)
            for name, expression in self.schedules.items():
                cron(expression, name=name, timezone="UTC")(synced)
            yield


def rows() -> dict[str, str]:
    return dict(CronSchedule.objects.values_list("name", "expression"))


def age(seconds: float) -> None:
    """So much time passes on the database's clock."""
    by = timedelta(seconds=seconds)
    for release in ScheduleRelease.objects.all():
        since = release.seen_since
        ScheduleRelease.objects.filter(pk=release.pk).update(
            seen_at=release.seen_at - by, activated_at=release.activated_at - by,
            seen_since=None if since is None else since - by,
        )  # fmt: skip


def lose_the_current(seconds: float) -> None:
    """Nobody with the current version has been seen for so long, while the others are."""
    current = ScheduleRelease.objects.latest("activated_at")
    ScheduleRelease.objects.filter(pk=current.pk).update(seen_at=current.seen_at - timedelta(seconds=seconds))


def live(monotonic: Monotonic, seconds: float, *alive: Worker) -> None:
    for _ in range(round(seconds / EVERY)):
        monotonic.now += EVERY
        age(EVERY)
        for worker in alive:
            assert worker.look()
