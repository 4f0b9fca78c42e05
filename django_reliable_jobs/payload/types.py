"""The values that a payload is made of: how each type is written as JSON text, and how a tag is read back.

A tag is an object with one key that starts with `$`. It is used for what JSON has no word for, and for the numbers that
jsonb would change. Containers are in `encoding`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring as quote
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django_reliable_jobs.errors import PayloadError
from django_reliable_jobs.payload.refusals import Refused

#: Python reads no longer decimal integer than `sys.get_int_max_str_digits()`, which may be as low as 640 digits;
#: hexadecimal has no such limit.
_BIG = 10**600


def write_str(value: str) -> str:
    if "\0" in value:
        raise Refused("text with a NUL character cannot be stored; remove it: value.replace('\\0', '')")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused("text with a lone surrogate is not Unicode; decode it with errors='replace'") from None
    return quote(value)


def _int(value: int) -> str:
    return repr(value) if -_BIG < value < _BIG else f'{{"$int":"{value:x}"}}'


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise Refused(f"the float {value} is not JSON; pass None, or leave it out")
    # jsonb gives 1e16 back as an int, and -0.0 without its sign.
    if abs(value) >= 1e16 or (value == 0 and math.copysign(1, value) < 0):
        return f'{{"$float":"{value!r}"}}'
    return repr(value)


def _datetime(value: datetime) -> str:
    zone = value.tzinfo
    if zone is not None:
        _check_offset(value)
    return _clock("$datetime", value.isoformat(), zone, value.fold)


def _time(value: time) -> str:
    zone = value.tzinfo
    if _zone_key(zone) is not None:
        value = value.replace(tzinfo=None)  # a time of day in a zone has no offset of its own
    elif zone is not None:
        _check_offset(value)
    return _clock("$time", value.isoformat(), zone, value.fold)


def _check_offset(value: datetime | time) -> None:
    try:
        offset = value.utcoffset()
    except Exception as error:  # noqa: BLE001 - whatever a tzinfo of unknown make raises
        raise Refused(f"its tzinfo has no valid UTC offset ({type(error).__name__}); convert it to UTC") from None
    if offset is None:
        raise Refused("its tzinfo has no UTC offset; pass it without tzinfo, or convert it to UTC")
    if offset.microseconds:  # fromisoformat() reads some of these as UTC
        raise Refused("its UTC offset is not in whole seconds; convert it to UTC")


def _zone_key(zone: object) -> str | None:
    return zone.key if type(zone) is ZoneInfo else None


def _clock(tag: str, text: str, zone: object, fold: int) -> str:
    key = _zone_key(zone)
    if key is None and not fold:
        return f'{{"{tag}":"{text}"}}'
    return f'{{"{tag}":["{text}",{"null" if key is None else quote(key)},{fold}]}}'


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Refused(f"the Decimal {value} is not a number; pass None, or leave it out")
    return f'{{"$decimal":"{value}"}}'


#: Exact type -> its JSON text.
WRITERS: dict[type, Callable[[Any], str]] = {
    str: write_str,
    int: _int,
    float: _float,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
    datetime: _datetime,
    date: lambda value: f'{{"$date":"{value.isoformat()}"}}',
    time: _time,
    timedelta: lambda value: f'{{"$timedelta":[{value.days},{value.seconds},{value.microseconds}]}}',
    Decimal: _decimal,
    UUID: lambda value: f'{{"$uuid":"{value}"}}',
}


def _read_datetime(body: Any) -> datetime:
    if isinstance(body, str):
        return datetime.fromisoformat(body)
    text, key, fold = body
    moment = datetime.fromisoformat(text).replace(fold=fold)
    if key is None:
        return moment
    local = moment.replace(tzinfo=ZoneInfo(key))
    # Where the two hosts have other rules for the zone, the instant is what stays.
    return local if local.utcoffset() == moment.utcoffset() else moment.astimezone(local.tzinfo)


def _read_time(body: Any) -> time:
    if isinstance(body, str):
        return time.fromisoformat(body)
    text, key, fold = body
    moment = time.fromisoformat(text).replace(fold=fold)
    return moment if key is None else moment.replace(tzinfo=ZoneInfo(key))


_READERS: dict[str, Callable[[Any], Any]] = {
    "$int": lambda body: int(body, 16),
    "$float": float,
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda body: timedelta(*body),
    "$decimal": Decimal,
    "$uuid": UUID,
}


def untag(value: dict[str, Any]) -> Any:
    """Return what a JSON object stands for: the tagged value, or the object itself. Its values are decoded already."""
    if len(value) != 1:
        return value
    ((tag, body),) = value.items()
    if not tag.startswith("$"):
        return value
    if tag.startswith("$$"):  # the caller's own key, escaped
        return {tag[1:]: body}
    reader = _READERS.get(tag)
    if reader is None:
        raise PayloadError(f"the stored payload has the unknown tag {tag!r}: a newer version wrote it, or somebody did")
    try:
        return reader(body)
    except Exception as error:  # an edited row, or a zone that this host does not know
        raise PayloadError(f"the stored payload has a {tag!r} that cannot be read: {error!r}") from error
