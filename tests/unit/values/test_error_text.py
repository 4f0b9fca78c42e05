from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reliable_jobs.errors import PermanentFailure
from django_reliable_jobs.values.error_text import describe_exception, safe_text

#: The machine may be busy: time is not what these tests are about.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def storable(text: str) -> bool:
    """Whether a PostgreSQL text column takes it."""
    text.encode()  # raises for a lone surrogate
    return type(text) is str and "\0" not in text


def raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


class Unprintable(Exception):
    """Its text raises what it was made of."""

    def __str__(self) -> str:
        raise self.args[0]

    __repr__ = __str__


class NotText(Exception):
    def __str__(self) -> str:
        return b"bytes"  # type: ignore[return-value]


class Odd(str):
    """Whatever is done with it in the usual way raises."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError

    def __getitem__(self, index: object) -> str:
        raise RuntimeError

    def __str__(self) -> str:
        return self


@unhurried
@given(st.text(), st.integers(0, 60))
def test_any_text_becomes_storable_and_short_enough(text: str, limit: int) -> None:
    result = safe_text(text, limit)
    assert storable(result)
    assert len(result) <= limit


def test_nul_and_lone_surrogates_are_replaced_and_the_rest_is_kept() -> None:
    assert safe_text("a\0b\udc80c\U0001f600é\n", 100) == "a\ufffdb\ufffdc\U0001f600é\n"


def test_a_cut_is_marked_with_the_whole_length() -> None:
    result = safe_text("x" * 5000, 100)
    assert len(result) == 100
    assert result.endswith("xxx... [cut, 5,000 characters]")
    assert safe_text("x" * 100, 100) == "x" * 100


@pytest.mark.parametrize(
    "error", [ValueError, RecursionError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit]
)
def test_a_str_that_raises_is_survived(error: type[BaseException]) -> None:
    name, message, trace = describe_exception(Unprintable(error("inner")))
    assert name == f"{__name__}.Unprintable"
    assert message == f"<{__name__}.Unprintable without text: its __str__ raised {error.__name__}>"
    assert storable(trace)


def test_an_endless_str_is_survived() -> None:
    class Endless(Exception):
        def __str__(self) -> str:
            return f"{self}"

    assert "RecursionError" in describe_exception(Endless())[1]


def test_a_str_that_is_no_text_is_survived() -> None:
    assert "TypeError" in describe_exception(NotText())[1]


def test_a_subclass_of_str_becomes_a_plain_str() -> None:
    for limit in (3, 100):
        assert type(safe_text(Odd("abcdef"), limit)) is str
    assert describe_exception(ValueError(Odd("abcdef")))[1] == "abcdef"


def test_a_class_whose_name_cannot_be_read_is_survived() -> None:
    class Meta(type):
        @property
        def __module__(cls) -> str:  # type: ignore[override]
            raise RuntimeError

    class Nameless(Exception, metaclass=Meta):
        pass

    name, message, trace = describe_exception(Nameless("text"))
    assert (name, message) == ("object", "text")
    assert storable(trace)


def test_a_class_name_is_bounded_and_storable() -> None:
    kind = type("E" * 5000, (Exception,), {"__module__": "odd\0\ud800"})
    name, _, trace = describe_exception(kind())
    assert len(name) == 300
    assert storable(name)
    assert storable(trace)


def test_builtin_names_are_short_and_others_say_their_module() -> None:
    assert describe_exception(ValueError())[0] == "ValueError"
    assert describe_exception(PermanentFailure())[0] == "django_reliable_jobs.errors.PermanentFailure"


def test_a_huge_message_is_cut_quickly() -> None:
    with within(3):
        _, message, trace = describe_exception(ValueError("x" * 50_000_000))
    assert len(message) == 10_000
    assert message.endswith("[cut, 50,000,000 characters]")
    assert len(trace) < 12_000
    assert "ValueError: xxx" in trace


def test_bytes_that_are_no_utf_8_are_described() -> None:
    assert describe_exception(ValueError(b"\xff\xfe"))[1] == r"b'\xff\xfe'"
    assert "can't decode byte 0xff" in describe_exception(raised(lambda: b"\xff".decode()))[1]
    assert (
        describe_exception(OSError(2, "no", b"\xff".decode(errors="surrogateescape")))[1] == r"[Errno 2] no: '\udcff'"
    )


def first_frame(depth: int) -> None:
    middle_frame(depth)


def middle_frame(depth: int) -> None:
    if depth == 0:
        last_frame()
    middle_frame(depth - 1)


def last_frame() -> None:
    raise ValueError("at the \0 bottom")


def test_a_recursion_of_ten_thousand_frames_keeps_its_first_and_last_ones() -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        error = raised(lambda: first_frame(10_000))
    finally:
        sys.setrecursionlimit(before)
    with within(3):
        _, message, trace = describe_exception(error)
    assert message == "at the \ufffd bottom"
    assert "first_frame(10_000)" in trace
    assert "frames left out ..." in trace
    assert "in last_frame" in trace
    assert trace.endswith("ValueError: at the \ufffd bottom\n")
    assert storable(trace)
    assert len(trace) < 10_000


def test_a_traceback_that_is_too_long_keeps_its_head_and_its_tail() -> None:
    error = raised(lambda: first_frame(60))
    whole = describe_exception(error)[2]
    cut = describe_exception(error, traceback_limit=400)[2]
    assert len(cut) == 400
    assert cut.startswith("Traceback (most recent call last):\n")
    assert f"... [cut, {len(whole):,} characters] ...\n" in cut
    assert cut.endswith("ValueError: at the \ufffd bottom\n")


@pytest.mark.parametrize("limit", [0, 1, 10, 37, 38, 39, 50])
def test_the_smallest_limits_hold(limit: int) -> None:
    _, message, trace = describe_exception(raised(lambda: first_frame(5)), message_limit=limit, traceback_limit=limit)
    assert len(message) <= limit
    assert len(trace) <= limit


def test_causes_and_contexts_are_kept() -> None:
    def chain() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904
        except ValueError as error:
            raise RuntimeError("third") from error

    trace = describe_exception(raised(chain))[2]
    assert trace.index("KeyError: 'first'") < trace.index("ValueError: second") < trace.index("RuntimeError: third")
    assert "During handling of the above exception" in trace
    assert "direct cause of the following exception" in trace


def test_the_stacks_of_causes_and_of_groups_are_shortened_too() -> None:
    inner = raised(lambda: first_frame(500))

    def outer() -> None:
        raise ExceptionGroup("several", [ValueError("one"), inner]) from inner  # type: ignore[list-item]

    _, message, trace = describe_exception(raised(outer))
    assert message == "several (2 sub-exceptions)"
    assert trace.count("frames left out") == 2
    assert "ValueError: one" in trace


def test_exceptions_that_are_chained_in_a_circle_are_survived() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert describe_exception(one)[2].endswith("ValueError: one\n")


def test_thousands_of_chained_exceptions_are_quick_and_bounded() -> None:
    error: BaseException | None = None
    for index in range(5_000):
        following = ValueError(index)
        following.__context__ = error
        error = following
    assert error is not None
    with within(3):
        trace = describe_exception(error)[2]
    assert len(trace) == 50_000
    assert trace.startswith("ValueError: 0\n")
    assert trace.endswith("ValueError: 4999\n")


def test_groups_inside_groups_are_survived() -> None:
    error: Exception = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("group", [error])
    with within(3):
        trace = describe_exception(error)[2]
    assert "ExceptionGroup: group" in trace or "traceback not available" in trace


def test_notes_that_are_broken_are_survived() -> None:
    error = ValueError("text")
    error.__notes__ = [Unprintable(SystemExit()), "a \0 note"]  # type: ignore[list-item]
    _, message, trace = describe_exception(error)
    assert message == "text"
    assert storable(trace)


def test_local_variables_are_not_in_the_traceback() -> None:
    def with_secret() -> None:
        password = "hunter" + "2"
        raise ValueError(len(password))

    assert "hunter2" not in describe_exception(raised(with_secret))[2]


def test_an_exception_without_a_traceback_is_described() -> None:
    assert describe_exception(ValueError("x")) == ("ValueError", "x", "ValueError: x\n")
