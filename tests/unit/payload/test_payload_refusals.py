"""What a payload cannot hold, and what the error says."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from datetime import datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db.models import TextChoices
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy

from django_reliable_jobs.errors import PayloadError, ReliableJobsError
from django_reliable_jobs.payload import MAX_DEPTH, dumps, dumps_call, loads
from tests.unit.payload.test_payload import assert_same, nested


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Status(TextChoices):
    OPEN = "open"


class Text(str):
    __slots__ = ()


class Moment(datetime):
    pass


class Nowhere(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None


class BrokenZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError


@dataclass
class Line:
    total: int


Point = namedtuple("Point", "x y")

REFUSED = [
    (Colour.RED, r"pass its \.value"),
    (Level.HIGH, r"pass its \.value"),
    (Word.YES, r"pass its \.value"),
    (Status.OPEN, r"pass its \.value"),
    (mark_safe("<b>"), "pass plain text: value"),
    (Text("a"), "pass plain text"),
    (gettext_lazy("yes"), r"pass str\(value\)"),
    (SimpleLazyObject(lambda: 1 / 0), r"pass the \.pk"),
    (User(pk=1), r"django\.contrib\.auth\.models\.User .*; pass its \.pk"),
    (User.objects.all(), "pass a list of primary keys"),
    (User.objects, "pass a list of primary keys"),
    ((1, 2), r"pass list\(value\)"),
    (Point(1, 2), r"pass value\._asdict\(\)"),
    ({1}, r"pass a list: sorted\(value\)"),
    (frozenset(), r"pass a list: sorted\(value\)"),
    (b"x", "b64encode"),
    (bytearray(b"x"), "b64encode"),
    (memoryview(b"x"), "b64encode"),
    (OrderedDict(a=1), r"pass dict\(value\)"),
    (defaultdict(list), r"pass dict\(value\)"),
    (Counter("a"), r"pass dict\(value\)"),
    (UserDict(), r"pass list\(value\)|pass dict"),
    (deque(), r"pass list\(value\)"),
    (iter([1]), r"pass list\(value\)"),
    (range(3), r"pass list\(value\)"),
    ({}.keys(), r"pass list\(value\)"),
    (Path("/tmp"), r"pass str\(value\)"),
    (Line(1), r"pass dataclasses\.asdict\(value\)"),
    (Moment(2026, 1, 1), "pass a plain datetime"),
    (3j, "pass one of: str, int"),
    (object(), "pass one of: str, int"),
    (print, "pass one of: str, int"),
    (Line, "pass its dotted name"),
    (math.nan, "the float nan is not JSON"),
    (math.inf, "the float inf is not JSON"),
    (-math.inf, "the float -inf is not JSON"),
    (Decimal("NaN"), "the Decimal NaN is not a number"),
    (Decimal("sNaN"), "the Decimal sNaN is not a number"),
    (Decimal("-Infinity"), "the Decimal -Infinity is not a number"),
    ("a\0b", "NUL character"),
    ("\ud800", "lone surrogate"),
    ("a\udcffb", "lone surrogate"),
    (datetime(2026, 1, 1, tzinfo=Nowhere()), "no UTC offset"),
    (time(1, tzinfo=Nowhere()), "no UTC offset"),
    (datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=-1))), "not in whole seconds"),
    (datetime(2026, 1, 1, tzinfo=BrokenZone()), "no valid UTC offset"),
]


@pytest.mark.parametrize(("value", "says"), REFUSED, ids=[f"{index}" for index in range(len(REFUSED))])
def test_what_would_not_come_back_is_refused_with_its_place_and_a_remedy(value: Any, says: str) -> None:
    with pytest.raises(PayloadError, match=rf"^argument 'invoice': .*{says}"):
        dumps_call((value,), {}, ("invoice",), 1000)
    with pytest.raises(PayloadError, match=rf"^argument 'lines'\[1\]\['total'\]: .*{says}"):
        dumps_call((), {"lines": [1, {"total": value}]}, (), 1000)
    with pytest.raises(PayloadError, match=rf"^the result: .*{says}"):
        dumps(value, "the result")


def test_the_error_is_a_value_error_of_the_package_without_the_refused_value() -> None:
    with pytest.raises(PayloadError) as caught:
        dumps({"card": b"4111-1111"}, "the result")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ReliableJobsError)
    assert "4111" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("value", [SafeString("<b>"), Text("a"), Text("")])
def test_the_remedy_for_a_subclass_of_str_works(value: str) -> None:
    assert loads(dumps(value + "", "x")) == value


def test_positions_without_a_name_are_counted_from_one() -> None:
    with pytest.raises(PayloadError, match=r"^positional argument 3: "):
        dumps_call((1, 2, {3}), {}, ("first", "second"), 1000)
    with pytest.raises(PayloadError, match=r"^argument 'second': "):
        dumps_call((1, {2}, 3), {}, ("first", "second"), 1000)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (1, "1"),
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ((1, 2), "(a tuple)"),
        (10**5000, "(an int)"),
        (Word.YES, "(a Word)"),
        (SafeString("a"), "(a SafeString)"),
        (UUID(int=0), "(a UUID)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_key_that_is_no_str_is_named(key: Any, shown: str) -> None:
    with pytest.raises(PayloadError) as caught:
        dumps_call((), {"prices": {"a": [{key: "x"}]}}, (), 1000)
    assert str(caught.value).startswith(f"argument 'prices'['a'][0]: the key {shown} is not a plain str")


def test_keys_that_would_fall_together_are_not_lost() -> None:
    with pytest.raises(PayloadError, match="the key 1 is not a plain str"):
        dumps({1: "a", "1": "b"}, "the result")


@pytest.mark.parametrize(("key", "says"), [("a\0b", "NUL character"), ("\udc80", "lone surrogate")])
def test_a_key_that_cannot_be_stored_is_named(key: str, says: str) -> None:
    with pytest.raises(PayloadError, match=rf"^argument 'data'\[0\]: the key '.*\\x?u?.*': text with a {says}"):
        dumps_call(([{key: 1}],), {}, ("data",), 1000)
    with pytest.raises(PayloadError, match=f"text with a {says}"):
        dumps_call((), {key: 1}, (), 1000)


def test_a_long_key_is_shortened_in_the_place() -> None:
    with pytest.raises(PayloadError) as caught:
        dumps({"k" * 10_000: {1}}, "the result")
    assert len(str(caught.value)) < 250


def test_a_place_far_down_is_shortened() -> None:
    value: Any = {1}
    for _ in range(100):
        value = [value]
    with pytest.raises(PayloadError) as caught:
        dumps(value, "x")
    assert str(caught.value).startswith("x[0][0][0][0][0][0]...[0][0]")
    assert len(str(caught.value)) < 250


def test_nesting_has_a_limit() -> None:
    assert_same(loads(dumps(nested(MAX_DEPTH), "x")), nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(PayloadError, match="nested more than 200 levels deep, or contains itself"):
            dumps(nested(depth), "x")


def test_a_value_that_contains_itself_is_refused_soon() -> None:
    circle: list[Any] = []
    circle += [circle, circle]
    wheel: dict[str, Any] = {}
    wheel["a"] = wheel["b"] = [wheel, wheel]
    for value in (circle, wheel):
        with pytest.raises(PayloadError, match="contains itself"):
            dumps(value, "x")


def test_a_small_value_that_multiplies_is_refused_soon() -> None:
    value: Any = "x"
    for _ in range(100):
        value = [value, value]  # 2 ** 100 strings, were they written down
    with pytest.raises(PayloadError, match="more than 1,000 bytes"):
        dumps(value, "x", 1000)


def test_the_limit_counts_bytes_of_both_texts_together() -> None:
    args, kwargs = ("ä" * 10,), {"b": "x" * 10}
    size = sum(len(text.encode()) for text in dumps_call(args, kwargs, ("a",), 1000))
    dumps_call(args, kwargs, ("a",), size)
    with pytest.raises(PayloadError) as caught:
        dumps_call(args, kwargs, ("a",), size - 1)
    assert str(caught.value) == (
        f"the arguments together (the largest: argument 'a'): more than {size - 1} bytes as JSON;"
        " store the data, and pass its key or file name"
    )


def test_the_limit_is_exact_for_a_single_value() -> None:
    for value in ("ä" * 50, ["ä" * 50], {"key": ["ä" * 50, 1]}, [1, 2, 3], {"a": 1, "b": 2}, [], 12345):
        size = len(dumps(value, "x").encode())
        assert dumps(value, "x", size)
        with pytest.raises(PayloadError, match=rf"^the result.*more than {size - 1} bytes"):
            dumps(value, "the result", size - 1)


def test_a_large_argument_is_named() -> None:
    with pytest.raises(PayloadError, match=r"^argument 'rows'(\[\d+\])?: more than 1,000,000 bytes"):
        dumps_call((1, [0] * 1_000_000), {}, ("id", "rows"), 1_000_000)
    with pytest.raises(PayloadError, match=r"argument 'text'.*more than 1,000,000 bytes"):
        dumps_call((1,), {"text": "x" * 2_000_000}, ("id",), 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1",
        "nonsense",
        '{"$later": 1}',
        '{"$date": "tomorrow"}',
        '{"$date": 5}',
        '{"$int": 5}',
        '{"$datetime": ["2026-01-01T00:00:00+00:00", "Mars/Olympus", 0]}',
        '{"$datetime": ["2026-01-01T00:00:00+00:00", "../../etc/passwd", 0]}',
        '{"$datetime": []}',
        '{"$timedelta": [1e300]}',
        '{"$uuid": "x"}',
        '{"$decimal": "x"}',
        pytest.param("[" * 100_000 + "]" * 100_000, id="too deep"),
        pytest.param("1" * 5000, id="too long"),
    ],
)
def test_a_row_that_somebody_edited_is_a_payload_error(text: str) -> None:
    with pytest.raises(PayloadError, match=r"^the stored payload "):
        loads(text)
