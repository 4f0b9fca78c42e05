"""FR-P01, FR-P04, FR-P05, FR-P07, FR-P11 through enqueue: what comes back is what went in, or nothing
is stored and the caller is told.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy
from pytest_django import DjangoAssertNumQueries

from django_reliable_jobs import PayloadError, job
from django_reliable_jobs.models import Job
from django_reliable_jobs.payload import loads
from django_reliable_jobs.store.exchange import ClaimRequest, Source, exchange
from tests.support.probes.jobs import echo, nap, noop
from tests.support.probes.models import Mark
from tests.unit.payload.test_payload import assert_same

pytestmark = pytest.mark.django_db


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 1


class Point(NamedTuple):
    x: int


@dataclass
class Order:
    number: int


class Text(str):
    __slots__ = ()


SAME: dict[str, Any] = {
    "uuid": UUID(int=7),
    "aware datetime": datetime(2026, 3, 1, 12, 30, 0, 1, tzinfo=UTC),
    "datetime of a zone": datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=1),
    "datetime with an offset": datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "naive datetime": datetime(2026, 3, 1, 12, 30),
    "date": date(2026, 3, 1),
    "time": time(23, 59, 59, 999999),
    "timedelta": timedelta(days=-1, microseconds=1),
    "decimal": Decimal("1.10"),
    "large int": 2**200,
    "float": 1e-300,
    "bool in a list": [True, 1, 1.0, None],
    "text": "\u00e9 \U0001f600 \\u0000 \\ \" ' %s $1 :x",
    "a dict that looks like a tag": {"$date": "2026-03-01"},
    "deep": {"a": [{"b": [Decimal("NaN").copy_abs() and 1]}]},
    "empty": [{}, [], ""],
}


@pytest.mark.parametrize("value", SAME.values(), ids=SAME)
def test_it_comes_back_as_it_went_in(value: Any) -> None:
    made = echo.enqueue(value)
    stored = Job.objects.get()
    for row in (made, stored):
        [back], named = row.arguments
        assert_same(back, value)
        assert named == {}
    [lease] = exchange("default", uuid4(), 30, [], ClaimRequest(1, pairs=[Source("default", 0)])).leases
    assert_same(loads(lease.args), [value])


REFUSED: dict[str, tuple[Any, str]] = {
    "nul": ("a\0b", "NUL"),
    "nul in a key": ({"a\0": 1}, "NUL"),
    "nul deep in a list": ([[["a\0"]]], r"\[0\]\[0\]\[0\]"),
    "half a character": ("\ud800", "surrogate"),
    "nan": (float("nan"), "nan"),
    "infinity": ([float("inf")], r"\[0\].*inf"),
    "minus infinity": ({"a": -float("inf")}, r"\['a'\].*inf"),
    "decimal nan": (Decimal("NaN"), "NaN"),
    "tuple": ((1, 2), r"list\(value\)"),
    "named tuple": (Point(1), "_asdict"),
    "set": ({1}, r"sorted\(value\)"),
    "bytes": (b"x", "base64"),
    "int key": ({1: "x"}, "key 1 is not a plain str"),
    "None key": ({None: 1}, "key None"),
    "bool key": ({True: 1}, "key True"),
    "float key": ({1.5: 1}, "key 1.5"),
    "tuple key": ({(1, 2): 3}, "key"),
    "a key twice": ({1: "a", "1": "b"}, "key 1"),
    "enum": (Colour.RED, ".value"),
    "int enum": (Level.HIGH, ".value"),
    "text subclass": (Text("x"), "plain text"),
    "dataclass": (Order(1), "asdict"),
    "path": (Path("x"), r"str\(value\)"),
    "lazy text": (gettext_lazy("Yes"), r"str\(value\)"),
    "lazy object": (SimpleLazyObject(AnonymousUser), ".pk"),
    "fraction": (Fraction(1, 3), "numerator"),
    "function": (len, "handler|one of"),
    "object": (object(), "one of"),
    "complex": (1j, "one of"),
    "itself": (lambda loop: loop.append(loop) or loop, "deep, or contains itself"),
}


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_the_argument_and_the_job_named(
    value: Any, message: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    if getattr(value, "__name__", "") == "<lambda>":
        value = value([])
    with transaction.atomic():
        for call in (
            lambda: echo.enqueue(value),
            lambda: echo.enqueue(value=value),
            lambda: echo.enqueue_many([(1,), (value,)]),
            lambda: echo.enqueue_many([{"value": value}]),
        ):
            with (
                django_assert_num_queries(0),
                pytest.raises(PayloadError, match=f"(?s)probes.echo: argument 'value'.*{message}"),
            ):
                call()
        Mark.objects.create(label="the transaction is usable")
        assert echo.enqueue("fine").created
    assert Job.objects.count() == 1


def test_a_model_instance_and_a_queryset_are_refused_without_a_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    mark = Mark.objects.create(label="x")
    for value, hint in ((mark, r"\.pk"), (Mark.objects.all(), "list of primary keys"), (Mark.objects, "primary keys")):
        with django_assert_num_queries(0), pytest.raises(PayloadError, match=hint):
            echo.enqueue(value)
    assert echo.enqueue(mark.pk).arguments == ([mark.pk], {})


def test_the_path_to_the_place_is_named() -> None:
    with pytest.raises(PayloadError, match=r"probes\.nap: argument 'label'\['lines'\]\[1\]\['price'\]: "):
        nap.enqueue(1, {"lines": [{}, {"price": {1}}]})


def test_a_payload_that_is_too_large_is_refused(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"MAX_PAYLOAD_BYTES": 1000}
    with transaction.atomic():
        with pytest.raises(PayloadError, match=r"probes\.nap: .*'label'.* more than 1,000 bytes"):
            nap.enqueue(1.0, "x" * 1000)
        with pytest.raises(PayloadError, match="more than 1,000 bytes"):
            nap.enqueue_many([(1.0, "\u00e9" * 500)])
        nap.enqueue(1.0, "x" * 900)
    assert Job.objects.count() == 1


def test_the_default_limit_is_a_megabyte() -> None:
    echo.enqueue("x" * 999_000)
    with pytest.raises(PayloadError, match="store the data, and pass its key"):
        echo.enqueue("x" * 1_000_000)


def test_a_large_limit_can_be_set(settings: Any) -> None:
    settings.RELIABLE_JOBS = {"MAX_PAYLOAD_BYTES": 30_000_000}
    assert len(echo.enqueue("x" * 20_000_000).args[0]) == 20_000_000
    assert len(Job.objects.get().args[0]) == 20_000_000


@job(name="tests.mixed")
def mixed(first: int, /, second: int = 2, *rest: int, only: int, **more: int) -> None:
    pass


@job(name="tests.with_context", takes_context=True)
def with_context(ctx: Any, number: int) -> None:
    pass


WRONG: dict[str, tuple[Any, str]] = {
    "too many": (lambda: noop.enqueue(1, 2), r"probes\.noop\(number: .*too many positional arguments"),
    "unknown name": (lambda: noop.enqueue(nummer=1), "unexpected keyword argument 'nummer'"),
    "missing": (lambda: echo.enqueue(), "missing a required argument: 'value'"),
    "twice": (lambda: noop.enqueue(1, number=1), "multiple values for argument 'number'"),
    "the context is not passed": (lambda: with_context.enqueue(None, 1), "too many positional arguments"),
    "missing behind the context": (lambda: with_context.enqueue(), "missing a required argument: 'number'"),
    "keyword only": (lambda: mixed.enqueue(1, 2, 3), "missing a required (keyword-only )?argument: 'only'"),
    "positional only": (lambda: mixed.enqueue(first=1, only=1), "first"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_arguments_that_the_handler_does_not_take_are_a_type_error(
    call: Any, message: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with transaction.atomic():
        with django_assert_num_queries(0), pytest.raises(TypeError, match=message):
            call()
        Mark.objects.create(label="usable")
    assert not Job.objects.exists()


def test_every_kind_of_parameter_can_be_passed() -> None:
    assert mixed.enqueue(1, 5, 6, 7, only=8, other=9).arguments == ([1, 5, 6, 7], {"only": 8, "other": 9})
    assert with_context.enqueue(number=3).arguments == ([], {"number": 3})
