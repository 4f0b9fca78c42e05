"""Durations: what a person writes (seconds or a `timedelta`) as a checked number of seconds."""

from __future__ import annotations

import math
from datetime import timedelta

#: What every duration in the public API accepts: seconds, or a `timedelta`.
Duration = float | timedelta

#: Ten years, in seconds. No longer duration is taken, so that "the database's time + duration" is always a valid date.
MAX_SECONDS = 3650 * 86_400.0


def seconds(value: Duration, name: str, *, minimum: float = 0.0, maximum: float | None = None) -> float:
    """Return `value` (seconds or a `timedelta`) in seconds; `name` is what the error calls it.

    Raises TypeError for anything that is not a duration (a bool included) and ValueError for NaN, infinity and what is
    less than `minimum` or more than `maximum` (seconds; `MAX_SECONDS` when None).
    """
    result = _number(value, name)
    limit = MAX_SECONDS if maximum is None else maximum
    if not result <= limit:  # also true for NaN
        raise ValueError(f"{name} must be at most {_text(limit)}, not {_shown(value)}")
    if result < minimum:
        raise ValueError(f"{name} must be {_at_least(minimum)}, not {_shown(value)}")
    return result


def optional_seconds(
    value: Duration | None, name: str, *, minimum: float = 0.0, maximum: float | None = None
) -> float | None:
    """Like `seconds`, but None (no limit, or not given) stays None."""
    return None if value is None else seconds(value, name, minimum=minimum, maximum=maximum)


def capped_seconds(value: Duration, name: str) -> float:
    """Return `value` in seconds, at most `MAX_SECONDS`: for delays that a program computed (a Retry-After header, an
    exponential formula), where "far too long" has an obvious meaning and an error would only lose the job.

    Infinity counts as far too long. Raises TypeError for what is not a duration, ValueError for NaN and below zero.
    """
    result = _number(value, name)
    if math.isnan(result) or result < 0:
        raise ValueError(f"{name} must be {_at_least(0.0)}, not {_shown(value)}")
    return min(result, MAX_SECONDS)


def _number(value: Duration, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be seconds (a number) or a timedelta, not {type(value).__name__}")
    try:
        return float(value) + 0.0  # + 0.0 turns -0.0 into 0.0
    except OverflowError:  # an int beyond the range of float
        return math.inf if value > 0 else -math.inf


def _shown(value: Duration) -> str:
    if isinstance(value, int) and abs(value) >= 10**15:  # thousands of digits help nobody, and str() may refuse them
        return "a number beyond 10**15"
    return str(value)


def _at_least(minimum: float) -> str:
    return "zero or more seconds" if minimum == 0 else f"at least {_text(minimum)}"


def _text(limit: float) -> str:
    return "1 second" if limit == 1 else f"{limit:.10g} seconds"
