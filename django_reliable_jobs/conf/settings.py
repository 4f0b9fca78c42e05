"""`settings.RELIABLE_JOBS`, read when it is first asked for (never at import), checked, and kept until it changes.

`current()` is on the hot path: after the first call it returns one immutable object. `problems()` lists all that is
wrong, for the system checks. What the package would not act on is a problem, so that nothing is ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_reliable_jobs.conf.keys import SettingProblem, parse
from django_reliable_jobs.values.backoff import Backoff

__all__ = ["SettingProblem", "Settings", "current", "problems"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force; durations in seconds. None is "no limit", "for ever" or "not set".

    The attributes are the keys of `RELIABLE_JOBS` in lower case; the keys inside the mappings stay as they are written
    (`retention["DONE"]`, `queues["mail"]`, `guards["TIMEOUT"]`).
    """

    database: str
    lease: float
    heartbeat: float
    poll: float
    listen: bool
    listen_database: str | None
    max_attempts: int | None
    timeout: float | None
    backoff: Backoff
    grace: float
    prefetch: Literal["auto"] | int
    unknown_job_after: float
    max_payload_bytes: int
    retention: Mapping[str, float | None]
    keep_attempts: int
    queues: Mapping[str, Mapping[str, Any]]
    guards: Mapping[str, Any]
    migrate: Mapping[str, Any]
    release: str | None


_current: Settings | None = None


def current() -> Settings:
    """Return the settings. Raises `ImproperlyConfigured`, which names every wrong key."""
    return _current or _load()


def problems(raw: object) -> list[SettingProblem]:
    """Return what is wrong with `raw` (a value for `settings.RELIABLE_JOBS`); an empty list when it is fine."""
    return parse(raw)[1]


def _load() -> Settings:
    global _current
    values, found = parse(getattr(django_settings, "RELIABLE_JOBS", {}))
    if found:
        raise ImproperlyConfigured("\n".join(f"{problem.message} {problem.hint}".strip() for problem in found))
    _current = Settings(**{key.lower(): value for key, value in values.items()})
    return _current


def _forget(*, setting: str, **_: object) -> None:
    global _current
    if setting == "RELIABLE_JOBS":
        _current = None


setting_changed.connect(_forget, dispatch_uid="django_reliable_jobs.conf")
