"""The rows of schedules: written as the code or a person defines them, paused, resumed, taken away.

What can interleave. Two versions of an app's code are alive during a deploy: only the current one writes its rows, and
which that is, is decided under one lock for all workers (`releases`, `activate`). A fire that was planned from the row
before is void, since every change raises the version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_reliable_jobs.definitions.schedule import ScheduleDefinition
from django_reliable_jobs.models import CronSchedule
from django_reliable_jobs.store.statements import change, run

#: Seconds until a process that is stopped in the middle loses the lock; milliseconds that a row is waited for.
IDLE = 10.0
PATIENCE = 1000


class ReleaseStanding(NamedTuple):
    """Where this process' version of an app stands.

    `unseen`: seconds since a worker with the current one was seen. `in_touch`: for how many seconds workers with this one,
    whichever, have been seen without a break.
    """

    source: str
    is_current: bool
    is_known: bool
    unseen: float | None
    in_touch: float


class Drift(NamedTuple):
    """A schedule whose row is not as the code says: `owner` is the source it belongs to (None: there is no row).

    `only_owner`: the owner is all that differs.
    """

    name: str
    owner: str | None
    owner_is_alive: bool
    only_owner: bool


def locked(alias: str, name: str) -> CronSchedule | None:
    """The row, locked; only whose it is. No moments are read: one that is out of range is to be mended, not an error here."""
    rows = CronSchedule.objects.using(alias).filter(name=name).only("name", "source")
    return rows.select_for_update(no_key=True).first()


def lock(alias: str) -> bool:
    """Whether the caller's transaction may keep the rows in step; if not, another worker does just now."""
    return bool(run(alias, "schedules/lock", {"idle": int(IDLE * 1000), "patience": PATIENCE})[0][0])


def releases(alias: str, fingerprints: dict[str, str], longest: float) -> list[ReleaseStanding]:
    """`fingerprints` by source; an app without a schedule has one too. `longest` seconds without a look are a break."""
    params = {"sources": list(fingerprints), "fingerprints": list(fingerprints.values()), "break": longest}
    return [ReleaseStanding(*row) for row in run(alias, "schedules/releases", params)]


def seen(alias: str, fingerprints: dict[str, str], longest: float) -> None:
    """Waits for nobody: a row that is locked is being written by a worker that is as alive."""
    params = {"sources": list(fingerprints), "fingerprints": list(fingerprints.values()), "break": longest}
    change(alias, "schedules/seen", params)


def abandoned(alias: str, apps: Iterable[str], sources: Iterable[str], age: float) -> list[str]:
    """Sources that these apps had under another RELEASE and that nobody has had for `age` seconds."""
    params = {"apps": list(apps), "sources": list(sources), "age": age}
    return [row[0] for row in run(alias, "schedules/abandoned", params)]


def activate(alias: str, fingerprints: dict[str, str]) -> None:
    """These versions are the current ones of their apps from now on."""
    params = {"sources": list(fingerprints), "fingerprints": list(fingerprints.values())}
    change(alias, "schedules/activate", params)


def drift(alias: str, definitions: Sequence[ScheduleDefinition], alive: float) -> list[Drift]:
    """Which of the definitions the rows do not match. An app is alive that was seen within so many seconds."""
    columns = [_columns(each) for each in definitions]
    plural = {"name": "names", "job_name": "job_names", "expression": "expressions", "timezone": "timezones",
              "args": "args", "kwargs": "kwargs", "source": "sources", "misfire": "misfires",
              "misfire_grace": "misfire_graces", "catch_up_window": "catch_up_windows",
              "catch_up_limit": "catch_up_limits", "overlap": "overlaps", "jitter": "jitters",
              "starts_at": "starts_ats", "ends_at": "ends_ats", "pause_after_failures": "pause_afters"}  # fmt: skip
    params: dict[str, Any] = {many: [each[one] for each in columns] for one, many in plural.items()}
    return [Drift(*row) for row in run(alias, "schedules/drift", params | {"alive": alive})]


def save(alias: str, definition: ScheduleDefinition, next_fire: datetime | None, now: datetime) -> bool:
    """Write one definition. Nothing that was missed before `now` is caught up on; see `schedules/save.sql`.

    False: the row was like this already, or somebody has just made one of this name.
    """
    return bool(run(alias, "schedules/save", _columns(definition) | {"next_fire": next_fire, "now": now}))


def surplus(alias: str, sources: Sequence[str], names: Sequence[str]) -> bool:
    """Whether `retire` would take something away."""
    return bool(run(alias, "schedules/surplus", {"sources": list(sources), "names": list(names)})[0][0])


def retire(alias: str, sources: Sequence[str], names: Sequence[str]) -> list[tuple[str, bool]]:
    """Take away the rows of these apps but those with one of the names; which, and whether they were paused."""
    params = {"sources": list(sources), "names": list(names), "name": None}
    return [(row[0], row[1]) for row in run(alias, "schedules/retire", params)]


def delete(alias: str, name: str) -> None:
    """Its runs stay. A fire time that waited is recorded as skipped."""
    run(alias, "schedules/retire", {"sources": [], "names": [], "name": name})


def pause(alias: str, name: str, version: int, paused: bool, next_fire: datetime | None, now: datetime) -> bool:
    """Whether it was done. A resumed schedule goes on with `next_fire`."""
    params = {"name": name, "version": version, "paused": paused, "next_fire": next_fire, "now": now}
    return bool(run(alias, "schedules/pause", params))


def unpause(alias: str, name: str) -> bool:
    """Forget that a schedule which is not defined now was paused; whether it was."""
    return change(alias, "schedules/unpause", {"name": name}) > 0


def _columns(definition: ScheduleDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "job_name": definition.job.name,
        "expression": definition.timetable.text,
        "timezone": definition.timezone,
        "args": definition.args,
        "kwargs": definition.kwargs,
        "source": definition.source,
        **definition.rules.values(),
        "pause_after_failures": definition.pause_after_failures,
    }
