"""The payload codec against the jsonb that jobs are really stored in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.payload import MAX_DEPTH, decode, dumps, dumps_call, loads
from tests.unit.payload.test_payload import assert_same, keys, nested, payloads

pytestmark = pytest.mark.django_db

# Each example only reads, so one transaction does for all of them.
many = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def through_jsonb(text: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("select %s::jsonb::text", [text])
        result: str = cursor.fetchone()[0]
    return result


@many
@given(payloads)
def test_every_payload_comes_back_from_jsonb_as_it_went_in(value: Any) -> None:
    text = through_jsonb(dumps(value, "the result"))
    assert_same(loads(text), value)
    assert_same(decode(json.loads(text)), value)


@many
@given(st.lists(payloads, max_size=3), st.dictionaries(keys, payloads, max_size=3))
def test_every_call_comes_back_from_jsonb_as_it_went_in(args: list[Any], kwargs: dict[str, Any]) -> None:
    args_text, kwargs_text = dumps_call(tuple(args), kwargs, (), 10**7)
    assert_same(loads(through_jsonb(args_text)), args)
    assert_same(loads(through_jsonb(kwargs_text)), kwargs)


@many
@given(st.text())
def test_text_is_either_refused_or_comes_back(text: str) -> None:
    try:
        stored = dumps(text, "x")
    except ValueError:
        assert "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)
    else:
        assert_same(loads(through_jsonb(stored)), text)


def test_the_deepest_value_that_is_taken_can_be_stored() -> None:
    value = nested(MAX_DEPTH)
    assert_same(loads(through_jsonb(dumps(value, "x"))), value)
