"""Payloads: JSON text that comes back from a `jsonb` column exactly as it went in.

JSON's own types are stored as themselves, so that people can read and filter them in SQL. The rest, and the few numbers
that jsonb would change, are tagged: `{"$date": "2026-03-01"}`; a caller's own dict that looks like a tag gets a second
`$`. Everything else is refused with a `PayloadError` that names the place: a value that changed its type on the way is
found in production, in the handler.

Kept: exact types, the scale of a Decimal, fold, the UTC offset of a datetime, and its zone if that is a `ZoneInfo`
(another tzinfo comes back as its fixed offset). Not kept: the order of a dict's keys, which jsonb does not store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django_reliable_jobs.errors import PayloadError
from django_reliable_jobs.payload.refusals import Refused, refused_key, refused_type, shown_key
from django_reliable_jobs.payload.types import WRITERS, untag, write_str

#: Levels of lists and dicts. Also what ends a list that contains itself.
MAX_DEPTH = 200
#: The longest string that jsonb can hold, in bytes; the limit where the caller gives none.
JSONB_LIMIT = 2**28 - 1

_PLAIN = json.JSONDecoder()
_TAGGED = json.JSONDecoder(object_hook=untag)


def dumps(value: object, where: str, max_bytes: int | None = None) -> str:
    """Return the JSON text of `value`; `where` ("the result") is what an error calls it.

    Raises `PayloadError` for what would not come back as it is, and for more than `max_bytes` bytes of UTF-8.
    """
    limit = JSONB_LIMIT if max_bytes is None else max_bytes
    try:
        text = _encode(value, limit, 0)
        if _size(text) > limit:
            raise _too_large(limit)
    except Refused as refused:
        raise refused.error(where) from None
    return text


def dumps_call(
    args: Sequence[object], kwargs: Mapping[str, object], names: Sequence[str], max_bytes: int
) -> tuple[str, str]:
    """Return the JSON texts of a call: an array of `args` and an object of `kwargs`.

    `names` are the parameter names of the positions, for errors. Raises `PayloadError`, which names the argument;
    `max_bytes` limits both texts together, in bytes of UTF-8.
    """
    positional: list[str] = []
    named: list[str] = []
    for value in args:
        try:
            positional.append(_encode(value, max_bytes, 0))
        except Refused as refused:
            raise refused.error(_places(args, (), names)[len(positional)]) from None
    for key, value in kwargs.items():
        try:
            named.append(f"{_key(key, len(kwargs))}:{_encode(value, max_bytes, 0)}")
        except Refused as refused:
            raise refused.error(f"argument {shown_key(key)}") from None
    texts = f"[{','.join(positional)}]", f"{{{','.join(named)}}}"
    if _size(texts[0]) + _size(texts[1]) > max_bytes:
        sizes = [_size(text) for text in positional + named] or [0]
        places = _places(args, kwargs, names) or ["none"]
        where = f"the arguments together (the largest: {places[sizes.index(max(sizes))]})"
        raise _too_large(max_bytes).error(where)
    return texts


def loads(text: str) -> Any:
    """Return the value of the JSON text that `dumps` made, as jsonb gives it back.

    Raises `PayloadError` for what is no JSON, and for a tag that this version does not know.
    """
    try:
        return (_TAGGED if '"$' in text else _PLAIN).decode(text)
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the stored payload cannot be read: {error}") from error


def loads_call(args: str, kwargs: str) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as `dumps_call` made them. Raises `PayloadError`, also for what is no array or no object."""
    return as_call(loads(args), loads(kwargs) if kwargs != "{}" else {})


def as_call(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The decoded arguments of a call, unless they are none: `PayloadError`."""
    if type(args) is not list or type(kwargs) is not dict:
        raise PayloadError("the stored payload is no call: args must be a JSON array and kwargs a JSON object")
    return args, kwargs


def decode(value: Any) -> Any:
    """Like `loads`, for JSON that is parsed already (what a `JSONField` gives). Raises `PayloadError`."""
    try:
        return _decode(value)
    except RecursionError as error:
        raise PayloadError("the stored payload cannot be read: it is nested too deeply") from error


def _decode(value: Any) -> Any:
    if type(value) is dict:
        return untag({key: _decode(item) for key, item in value.items()})
    return [_decode(item) for item in value] if type(value) is list else value


def _encode(value: Any, limit: int, depth: int) -> str:
    kind = type(value)
    writer = WRITERS.get(kind)
    if writer is not None:
        return writer(value)
    if kind is dict:
        return _dict(value, limit, depth + 1)
    if kind is list:
        return _list(value, limit, depth + 1)
    return _other(value, kind)


def _list(value: list[Any], limit: int, depth: int) -> str:
    parts: list[str] = []
    left = limit
    _check_depth(depth)
    for item in value:
        try:
            text = _encode(item, limit, depth)
            left -= len(text) + 1
            if left < 0:  # found on the way: the same large value may be in it a thousand times
                raise _too_large(limit)
        except Refused as refused:
            refused.path.append(f"[{len(parts)}]")
            raise
        parts.append(text)
    return f"[{','.join(parts)}]"


def _dict(value: dict[Any, Any], limit: int, depth: int) -> str:
    parts: list[str] = []
    left = limit
    _check_depth(depth)
    for key, item in value.items():
        name = _key(key, len(value))
        try:
            text = f"{name}:{_encode(item, limit, depth)}"
            left -= len(text) + 1
            if left < 0:
                raise _too_large(limit)
        except Refused as refused:
            refused.path.append(f"[{shown_key(key)}]")
            raise
        parts.append(text)
    return f"{{{','.join(parts)}}}"


def _key(key: Any, count: int) -> str:
    if type(key) is not str:
        raise refused_key(key)
    if count == 1 and key.startswith("$"):
        key = f"${key}"
    try:
        return write_str(key)
    except Refused as refused:
        raise Refused(f"the key {shown_key(key)}: {refused.problem}") from None


def _other(value: Any, kind: type) -> str:
    # Frozen tests: freezegun's now() returns a subclass of its own, which stands for the plain class.
    if kind.__module__ == "freezegun.api" and kind.__name__ in ("FakeDatetime", "FakeDate"):
        return WRITERS[kind.__mro__[1]](value)
    raise refused_type(kind)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Refused(f"it is nested more than {MAX_DEPTH} levels deep, or contains itself; pass a flatter value")


def _places(args: Sequence[object], kwargs: Sequence[str] | Mapping[str, object], names: Sequence[str]) -> list[str]:
    positions = [
        f"argument {names[index]!r}" if index < len(names) else f"positional argument {index + 1}"
        for index in range(len(args))
    ]
    return positions + [f"argument {shown_key(key)}" for key in kwargs]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _too_large(limit: int) -> Refused:
    return Refused(f"more than {limit:,} bytes as JSON; store the data, and pass its key or file name")
