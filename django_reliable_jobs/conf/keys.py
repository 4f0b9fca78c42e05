"""The keys of `RELIABLE_JOBS`: their defaults, and what each may hold. A raw dict in, values and problems out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any

from django_reliable_jobs.values.backoff import Backoff
from django_reliable_jobs.values.durations import optional_seconds, seconds
from django_reliable_jobs.values.names import check_text

DAY = 86_400
#: The highest MAX_PAYLOAD_BYTES, well below what a jsonb value can hold.
LARGEST_PAYLOAD = 100_000_000
#: The shortest duration that makes sense for something that repeats or must come to an end.
SHORTEST = 0.001


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """One thing that is wrong. `key` is as in the settings, with a dot before a nested one ("RETENTION.DONE")."""

    key: str
    message: str
    hint: str


#: (raw value, how messages call the key) -> the checked value. TypeError or ValueError says what is wrong.
Check = Callable[[Any, str], Any]
#: Key -> (default, check).
Section = Mapping[str, tuple[Any, Check]]


def parse(raw: object) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return the values in force, defaults filled in, and all problems; while there are problems, use no value."""
    problems: list[SettingProblem] = []
    values = dict(_section(raw, _KEYS, "", problems))
    if isinstance(raw, Mapping) and "LEASE" in values:
        if "HEARTBEAT" not in raw:  # so that a shorter LEASE alone is a complete change
            values["HEARTBEAT"] = min(values["HEARTBEAT"], values["LEASE"] / 3)
        problems += _between_keys(values)
    return values, problems


def _between_keys(values: Mapping[str, Any]) -> list[SettingProblem]:
    problems = []
    lease = values["LEASE"]
    heartbeat, poll = values.get("HEARTBEAT", 0.0), values.get("POLL", 0.0)  # missing: has a problem of its own
    if heartbeat > lease / 3 + 1e-9:
        message = f"{_label('HEARTBEAT')} ({heartbeat:g} seconds) must be at most a third of LEASE ({lease:g} seconds)."
        hint = "A lease has to survive two lost heartbeats; leave HEARTBEAT out to have it follow LEASE."
        problems.append(SettingProblem("HEARTBEAT", message, hint))
    if poll > lease:
        message = f"{_label('POLL')} ({poll:g} seconds) must not be longer than LEASE ({lease:g} seconds)."
        problems.append(SettingProblem("POLL", message, "POLL is how long a job waits if its notification is lost."))
    return problems


def _section(
    raw: object, keys: Mapping[str, tuple[Any, Check | _Keys]], path: str, problems: list[SettingProblem]
) -> Mapping[str, Any]:
    """Parse one dict, at the top or nested; keys that are not given have their defaults."""
    if not isinstance(raw, Mapping):
        problems.append(
            SettingProblem(path, f"{_label(path)} must be a dict, not {type(raw).__name__}.", _expected(keys))
        )
        return {}
    values: dict[str, Any] = {}
    for key in [key for key in raw if key not in keys]:
        close = get_close_matches(str(key).upper(), keys, 1)
        hint = f'Did you mean "{close[0]}"?' if close else _expected(keys)
        problems.append(SettingProblem(_join(path, key), f"{_label(_join(path, key))} is not a setting.", hint))
    for key, (default, check) in keys.items():
        where, value = _join(path, key), raw.get(key, default)
        try:
            if isinstance(check, _Keys):
                values[key] = _section(value, check.keys, where, problems)
            else:
                values[key] = check(value, _label(where))
        except (TypeError, ValueError) as error:
            problems.append(SettingProblem(where, f"{error}.", f"The default is {default!r}."))
    return MappingProxyType(values)


@dataclass(frozen=True, slots=True)
class _Keys:
    """A nested dict with keys of its own; what is left out of it keeps its default."""

    keys: Section


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _label(path: str) -> str:
    return "RELIABLE_JOBS" + "".join(f'["{part}"]' for part in path.split(".") if part)


def _expected(keys: Mapping[str, object]) -> str:
    return f"The keys are: {', '.join(keys)}."


def _kind(value: Any, name: str, *, kind: type, text: str, optional: bool = False) -> Any:
    if (optional and value is None) or (isinstance(value, kind) and value != ""):
        return value
    shown = f"{value!r:.50}" if kind is bool or value == "" else type(value).__name__  # a text may hold a password
    raise TypeError(f"{name} must be {text}{' or None' if optional else ''}, not {shown}")


def _integer(value: Any, name: str, *, minimum: int, maximum: int, also: tuple[Any, ...] = ()) -> Any:
    if any(value is other or (isinstance(other, str) and value == other) for other in also):
        return value
    alternatives = "".join(f" or {other!r}" for other in also)
    wrong = f"{name} must be a whole number from {minimum:,} to {maximum:,}{alternatives}, not {value!r:.50}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(wrong)
    if not minimum <= value <= maximum:
        raise ValueError(wrong)
    return value


def _backoff(value: Any, name: str) -> Backoff:
    if isinstance(value, Backoff):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict with base, factor and cap, not {type(value).__name__}")
    unknown = [str(key) for key in value if key not in ("base", "factor", "cap")]
    if unknown:
        raise ValueError(f"{name} has the unknown key {unknown[0]!r}; the keys are base, factor and cap")
    try:
        return Backoff(**value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _queues(value: Any, name: str) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of queue names, not {type(value).__name__}")
    for queue, options in value.items():
        try:
            check_text(queue, "a queue name", 100, without=",: ")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} has the key {queue!r:.120}; {str(error).removesuffix('.')}") from None
        if not isinstance(options, Mapping):
            raise TypeError(f'{name}["{queue}"] must be a dict, not {type(options).__name__}')
        if "concurrency" in options:
            raise ValueError(
                f'{name}["{queue}"]["concurrency"], a limit over the whole fleet, is not enforced by this version; '
                f"take it out, and limit each worker process with `jobworker --queues {queue}:N`"
            )
        for option in options:
            raise ValueError(f'{name}["{queue}"] has the unknown key {option!r:.120}')
    return MappingProxyType({queue: MappingProxyType(dict(options)) for queue, options in value.items()})


def _release(value: Any, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str or None, not {type(value).__name__}")
    if not re.fullmatch(r"[A-Za-z0-9._+-]{1,64}", value):
        raise ValueError(f"{name} must be 1 to 64 letters, digits and . _ + -, not {value!r:.100}")
    return value


_text = partial(_kind, kind=str, text="a str that is not empty")
_optional_text = partial(_text, optional=True)
_flag = partial(_kind, kind=bool, text="True or False")
_positive = partial(seconds, minimum=SHORTEST)

_RETENTION: Section = {
    "DONE": (7 * DAY, optional_seconds),
    "CANCELLED": (7 * DAY, optional_seconds),
    "DEAD": (None, optional_seconds),
    "CRON_RUN": (90 * DAY, optional_seconds),
}
_GUARDS: Section = {
    "STORE": ("django_reliable_jobs.guards.database.DatabaseStore", _text),
    "OPTIONS": ({}, partial(_kind, kind=dict, text="a dict")),
    "TIMEOUT": (2, _positive),
}
_MIGRATE: Section = {
    "DATABASE": (None, _optional_text),
    "LOCK_TIMEOUT": (600, seconds),
    "KEY": (None, partial(_integer, minimum=-(2**63), maximum=2**63 - 1, also=(None,))),
    "POOLER": (False, _flag),
}

_KEYS: dict[str, tuple[Any, Check | _Keys]] = {
    "DATABASE": ("default", _text),
    "LEASE": (30, partial(seconds, minimum=1)),
    "HEARTBEAT": (10, _positive),
    "POLL": (1.0, _positive),
    "LISTEN": (True, _flag),
    "LISTEN_DATABASE": (None, _optional_text),
    "MAX_ATTEMPTS": (5, partial(_integer, minimum=1, maximum=2**31 - 1, also=(None,))),
    "TIMEOUT": (3600, partial(optional_seconds, minimum=SHORTEST)),
    "BACKOFF": ({"base": 10, "factor": 2, "cap": 3600}, _backoff),
    "GRACE": (20, seconds),
    "PREFETCH": ("auto", partial(_integer, minimum=0, maximum=10_000, also=("auto",))),
    "UNKNOWN_JOB_AFTER": (3600, seconds),
    "MAX_PAYLOAD_BYTES": (1_000_000, partial(_integer, minimum=100, maximum=LARGEST_PAYLOAD)),
    "RETENTION": ({}, _Keys(_RETENTION)),
    "KEEP_ATTEMPTS": (100, partial(_integer, minimum=1, maximum=1_000_000)),
    "QUEUES": ({}, _queues),
    "GUARDS": ({}, _Keys(_GUARDS)),
    "MIGRATE": ({}, _Keys(_MIGRATE)),
    "RELEASE": (None, _release),
}
