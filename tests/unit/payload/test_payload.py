"""Round trips here go through a stand-in for jsonb; `tests/database/enqueue/test_payload_roundtrip.py` uses the real one."""

from __future__ import annotations

import io
import json
import struct
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.errors import PayloadError
from django_reliable_jobs.payload import decode, dumps, dumps_call, loads

#: The machine may be busy: time is not what these tests are about.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PARIS = ZoneInfo("Europe/Paris")
ZONES = [None, UTC, timezone(timedelta(hours=-5, minutes=-30)), timezone(timedelta(seconds=1)), PARIS]
ZONES += [ZoneInfo(key) for key in ("UTC", "Asia/Ho_Chi_Minh", "America/New_York", "Australia/Lord_Howe")]

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
keys = st.one_of(texts, texts.map(lambda text: f"${text}"), st.sampled_from(["$date", "$$", "$", "$int", "$nothing"]))
datetimes = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.one_of(st.datetimes(), st.datetimes(datetime(2026, 10, 25, 1), datetime(2026, 10, 25, 4))),
    st.sampled_from(ZONES),
    st.integers(0, 1),
)
times = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.times(),
    st.sampled_from(ZONES),
    st.integers(0, 1),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**700), 10**700),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**30), 10**30).map(float),
    texts,
    datetimes,
    st.dates(),
    times,
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
)
payloads = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=20,
)


def assert_same(actual: Any, expected: Any) -> None:
    """Equal, of the same types, in every detail that `==` looks over."""
    assert type(actual) is type(expected)
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, float):
        assert repr(actual) == repr(expected)
    elif isinstance(expected, Decimal):
        assert actual.as_tuple() == expected.as_tuple()
    elif isinstance(expected, (datetime, time)):
        assert actual == expected
        assert actual.replace(tzinfo=None) == expected.replace(tzinfo=None)
        assert (actual.fold, actual.utcoffset()) == (expected.fold, expected.utcoffset())
        assert isinstance(actual.tzinfo, ZoneInfo) == isinstance(expected.tzinfo, ZoneInfo)
        assert getattr(actual.tzinfo, "key", None) == getattr(expected.tzinfo, "key", None)
    else:
        assert actual == expected


def as_jsonb(text: str) -> str:
    """What PostgreSQL does to it: numbers become numerics (no exponent, no sign of zero), keys are sorted."""

    def write(value: Any) -> str:
        if isinstance(value, Decimal):
            return f"{abs(value) if value == 0 else value:f}"
        if isinstance(value, list):
            return f"[{', '.join(map(write, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{json.dumps(key)}: {write(value[key])}' for key in sorted(value))}}}"
        return json.dumps(value, ensure_ascii=False)

    return write(json.loads(text, parse_float=Decimal, parse_int=Decimal))


@unhurried
@given(payloads)
def test_every_payload_comes_back_from_jsonb_as_it_went_in(value: Any) -> None:
    text = as_jsonb(dumps(value, "the result"))
    assert_same(loads(text), value)
    assert_same(decode(json.loads(text)), value)


@unhurried
@given(st.lists(payloads, max_size=3), st.dictionaries(keys, payloads, max_size=3))
def test_every_call_comes_back_from_jsonb_as_it_went_in(args: list[Any], kwargs: dict[str, Any]) -> None:
    args_text, kwargs_text = dumps_call(tuple(args), kwargs, (), 10**7)
    assert_same(loads(as_jsonb(args_text)), args)
    assert_same(loads(as_jsonb(kwargs_text)), kwargs)


@pytest.mark.parametrize(
    "value",
    [
        1e16,
        -1e16,
        1.5e300,
        sys.float_info.max,
        5e-324,
        -0.0,
        0.0,
        1.0,
        9007199254740993,
        2**64,
        10**4299,
        -(10**599),
        10**600,
        pytest.param(10**10_000, id="10000 digits"),
        pytest.param(-(16**9_999), id="10000 hexadecimal digits below zero"),
        Decimal("1.10"),
        Decimal("-0.00"),
        Decimal("1E+400"),
        Decimal("0.1") ** 50,
        datetime.min,
        datetime.max,
        datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
        datetime(2026, 3, 29, 2, 30, tzinfo=PARIS),
        datetime(1890, 1, 1, tzinfo=PARIS),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=-1))),
        datetime(2026, 1, 1, tzinfo=timezone(-timedelta(hours=23, minutes=59, seconds=59))),
        datetime(2026, 1, 1, fold=1),
        time(2, 30, fold=1, tzinfo=PARIS),
        time(23, 59, 59, 999_999, tzinfo=UTC),
        timedelta.max,
        timedelta.min,
        timedelta(microseconds=-1),
        '\u2028 \x01 \x7f \ufffe \U0001f600 \\u0000 "$date"',
        "",
        [],
        {},
        {"": None},
        [[[{}]]],
    ],
)
def test_values_at_the_edges_come_back(value: Any) -> None:
    assert_same(loads(as_jsonb(dumps([value], "x"))), [value])


@pytest.mark.parametrize(
    "value",
    [
        {"$date": "2026-01-01"},
        {"$$date": 1},
        {"$": 1},
        {"$unknown": None},
        {"$datetime": {"$int": "ff"}},
        {"$date": date(2026, 1, 1)},
        {"$date": "no date", "$int": 1},
    ],
)
def test_a_dict_that_looks_like_a_tag_stays_a_dict(value: Any) -> None:
    assert_same(loads(dumps(value, "x")), value)
    assert_same(loads(dumps_call((), value, (), 1000)[1]), value)


def test_plain_json_is_stored_readably() -> None:
    assert dumps({"id": 42, "lines": ["a", None, True, 1.5]}, "x") == '{"id":42,"lines":["a",null,true,1.5]}'
    assert dumps([date(2026, 3, 1), Decimal("1.10")], "x") == '[{"$date":"2026-03-01"},{"$decimal":"1.10"}]'
    assert dumps("häß", "x") == '"häß"'


def test_a_zone_of_another_make_comes_back_as_its_offset() -> None:
    class Summer(tzinfo):
        def utcoffset(self, moment: datetime | None) -> timedelta:
            return timedelta(hours=2)

    result = loads(dumps(datetime(2026, 7, 1, 12, tzinfo=Summer()), "x"))
    assert result == datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert result.tzinfo == timezone(timedelta(hours=2))


def test_where_the_rules_of_a_zone_differ_the_instant_is_kept() -> None:
    stored = '{"$datetime": ["2026-07-01T12:00:00+01:00", "Europe/Paris", 0]}'  # Paris has +02:00 here
    result = loads(stored)
    assert result == datetime(2026, 7, 1, 11, tzinfo=UTC)
    assert result.tzinfo is PARIS


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_frozen_time_in_tests_can_be_enqueued() -> None:
    fake = type("FakeDatetime", (datetime,), {"__module__": "freezegun.api"})
    assert dumps(fake(2026, 1, 1, tzinfo=UTC), "x") == '{"$datetime":"2026-01-01T00:00:00+00:00"}'


def test_a_zone_without_a_key_comes_back_as_its_offset() -> None:
    # TZif, version 1: one change in 1970, from +01:00 to +02:00.
    body = struct.pack(">lB", 0, 1) + struct.pack(">lBB", 3600, 0, 0) + struct.pack(">lBB", 7200, 1, 0) + b"ABC\0"
    nameless = ZoneInfo.from_file(io.BytesIO(b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 1, 2, 4) + body))
    result = loads(dumps(datetime(2026, 7, 1, 12, tzinfo=nameless), "x"))
    assert result.utcoffset() == timedelta(hours=2)
    with pytest.raises(PayloadError, match="no UTC offset"):
        dumps(time(12, tzinfo=nameless), "x")


def test_equal_values_are_written_alike() -> None:
    value = uuid4()
    assert dumps([value, {"a": 1}], "x") == dumps([UUID(str(value)), {"a": 1}], "x")
