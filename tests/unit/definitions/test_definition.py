"""A job definition looks like the function that it stands for (case U14)."""

from __future__ import annotations

import functools
import inspect

from django_reliable_jobs import job
from tests.support.probes import jobs as probes


@job(name="tests.documented")
def documented(number: int, *, label: str = "") -> None:
    """Does nothing, and says so."""


def test_it_has_the_attributes_that_functools_wraps_gives() -> None:
    function = documented.__wrapped__
    assert (documented.__name__, documented.__qualname__) == ("documented", "documented")
    assert documented.__doc__ == "Does nothing, and says so."
    assert documented.__module__ == __name__
    assert inspect.unwrap(documented) is function
    assert inspect.signature(documented) == inspect.signature(function)


def test_a_callable_without_a_name_needs_none() -> None:
    made = job(name="tests.half")(functools.partial(print, "half"))
    assert made.name == "tests.half"
    assert made.__wrapped__.func is print


def test_completion_shows_the_verbs_and_the_options_and_nothing_internal() -> None:
    shown = {name for name in dir(documented) if not name.startswith("_")}
    assert shown >= {
        "enqueue",
        "aenqueue",
        "enqueue_many",
        "aenqueue_many",
        "using",
        "call",
        "acall",
        "name",
        "queue",
        "timeout",
    }
    assert not shown & {
        "bound",
        "check_arguments",
        "with_fire_time",
        "wants_fire_time",
        "parameter_names",
        "is_coroutine",
    }
    assert not [name for name in dir(documented) if name.startswith("_") and not name.startswith("__")]
    bound = {name for name in dir(probes.noop.using(queue="x")) if not name.startswith("_")}
    assert bound == {"enqueue", "aenqueue", "enqueue_many", "aenqueue_many", "using"}
