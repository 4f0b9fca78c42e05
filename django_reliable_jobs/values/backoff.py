"""How long a failed job waits: exponential, a list, or the team's own function; always finite, never negative."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_reliable_jobs.values.durations import Duration, capped_seconds, seconds

logger = logging.getLogger("django_reliable_jobs.backoff")


@dataclass(frozen=True, init=False)
class Backoff:
    """Exponential backoff: `base` after the first failure, `factor` times longer after each next one, up to `cap`.

    `base` and `cap` are seconds or a `timedelta` (kept as seconds); `factor` is a number of 1 or more. Raises TypeError
    or ValueError, naming the parameter, for values that make no sense.
    """

    base: float
    factor: float
    cap: float

    def __init__(self, base: Duration = 10, factor: float = 2, cap: Duration = 3600) -> None:
        object.__setattr__(self, "base", seconds(base, "base"))
        object.__setattr__(self, "factor", _factor(factor))
        object.__setattr__(self, "cap", seconds(cap, "cap"))
        if self.cap < self.base:
            raise ValueError(f"cap ({self.cap:g} seconds) must not be less than base ({self.base:g} seconds)")

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (the first is 1), without jitter."""
        steps = max(attempt - 1, 0)
        if steps == 0 or self.factor == 1 or self.base < 1e-6:  # less than a microsecond never grows: it is zero
            return self.base
        # The cap comes before the power: 2.0 ** 1024 overflows, and attempt numbers have no limit.
        if steps >= (math.log(self.cap) - math.log(self.base)) / math.log(self.factor):
            return self.cap
        return min(self.cap, self.base * self.factor**steps)


#: What `@job(backoff=...)` takes. The last element of a list repeats; a function gets the attempt number (from 1).
BackoffSpec = Backoff | Sequence[Duration] | Callable[[int], Duration]


def as_backoff(spec: BackoffSpec) -> BackoffSpec:
    """Check `spec` where the job is defined, and return it with a list turned into a tuple of seconds.

    Raises TypeError or ValueError that says what is wrong; nothing is left to fail when a job is to be retried.
    """
    if isinstance(spec, Backoff):
        return spec
    if isinstance(spec, type):
        raise TypeError(f"backoff must be an instance, a list or a function, not the class {spec.__name__}")
    if callable(spec):
        _check_function(spec)
        return spec
    if isinstance(spec, (int, float, timedelta)):
        raise TypeError("backoff must be a Backoff, a list or a function; for one fixed delay pass a list: [30]")
    if isinstance(spec, (str, bytes)) or not isinstance(spec, Sequence):
        raise TypeError(f"backoff must be a Backoff, a list or a function, not {type(spec).__name__}")
    if not spec:
        raise ValueError("backoff must not be an empty list; [0] retries at once")
    return tuple(seconds(delay, f"backoff[{index}]") for index, delay in enumerate(spec))


def retry_delay(spec: BackoffSpec, attempt: int, random: Callable[[], float]) -> float:
    """Return the seconds until the next attempt after failed attempt number `attempt`: 50 to 100 % of the delay.

    `random` returns a number in [0, 1). Never raises because of the job's own backoff function: what it gets wrong is
    logged and answered with the default `Backoff`, as the job would otherwise stay RUNNING, or spin.
    """
    return _whole_delay(spec, attempt) * (0.5 + 0.5 * random())


def requested_delay(value: Duration) -> float:
    """Check the delay of a `Retry` or `Snooze` (seconds or a `timedelta`) and return it in seconds.

    A negative one or NaN is a ValueError where it is constructed; a huge one becomes `MAX_SECONDS`.
    """
    return capped_seconds(value, "delay")


def _whole_delay(spec: BackoffSpec, attempt: int) -> float:
    if isinstance(spec, Backoff):
        return spec.delay(attempt)
    if not callable(spec):
        return capped_seconds(spec[min(max(attempt, 1), len(spec)) - 1], "backoff")
    try:
        return capped_seconds(spec(attempt), "the result of the backoff function")
    except (Exception, SystemExit) as error:
        logger.warning(
            "backoff function %s failed at attempt %s, the default backoff is used: %s",
            getattr(spec, "__qualname__", type(spec).__name__),
            attempt,
            type(error).__name__,
            exc_info=True,
        )
        return Backoff().delay(attempt)


def _factor(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"factor must be a number, not {type(value).__name__}")
    try:
        factor = float(value)
    except OverflowError:
        factor = math.inf
    if not 1 <= factor < math.inf:
        raise ValueError(f"factor must be a finite number of 1 or more, not {factor:g}")
    return factor


def _check_function(function: Callable[[int], Duration]) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError("the backoff function must not be a coroutine function")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(1)
    except TypeError:
        raise TypeError("the backoff function must take one argument, the attempt number") from None
