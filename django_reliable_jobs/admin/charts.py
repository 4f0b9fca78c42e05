"""Small charts as data: what a template draws as SVG. Colours are the style sheet's; nothing is inline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_reliable_jobs.operations.overview.schedules import RUNS, RunFigures, RunState

#: Units of the view box: a bar is three wide and stands four from the next.
STEP, BAR, HEIGHT = 4, 3, 32


@dataclass(frozen=True, slots=True)
class Shape:
    """All bars of one kind, as one path; `kind` becomes its class. `title` is for a legend."""

    kind: str
    path: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Shapes in a box; `label` says in words what they show. Numbers are texts: no locale writes them with a comma."""

    shapes: tuple[Shape, ...]
    label: str
    width: str
    height: str = str(HEIGHT)


def columns(values: Sequence[float | None], label: str, kind: str, top: float = 0.0) -> Chart:
    """A bar for each value, as high as its part of the highest (at least `top`); None is "not known"."""
    most = max([top, *(value for value in values if value is not None)])
    known = [
        (position, max(2.0, HEIGHT * value / most))
        for position, value in enumerate(values)
        if value is not None and value > 0
    ]
    unknown = [(position, 2.0) for position, value in enumerate(values) if value is None]
    return Chart(_shapes({kind: known, "unknown": unknown}), label, str(len(values) * STEP))


#: What each state is called, and how high its bar is: it can be told apart without its colour.
STATES = {
    RunState.DONE: (_("done"), 14),
    RunState.UNFINISHED: (_("unfinished"), 8),
    RunState.FAILING: (_("failed, will be tried again"), 22),
    RunState.DEAD: (_("dead"), 32),
    RunState.CANCELLED: (_("cancelled"), 5),
    RunState.SKIPPED: (_("skipped"), 3),
    RunState.ERROR: (_("error, no job"), 27),
    RunState.GONE: (_("not known any more"), 11),
}


def strip(runs: Sequence[RunFigures]) -> Chart:
    """The last runs of a schedule, the newest at the right."""
    bars: dict[str, list[tuple[int, float]]] = {}
    for position, run in enumerate(runs, start=RUNS - len(runs)):
        bars.setdefault(str(run.state), []).append((position, STATES[run.state][1]))
    counts = {state: len(bars.get(str(state), ())) for state in STATES}
    parts = ", ".join(f"{count} {STATES[state][0]}" for state, count in counts.items() if count)
    label = ngettext("The last run: %(what)s", "The last %(count)d runs: %(what)s", len(runs))
    return Chart(_shapes(bars), label % {"count": len(runs), "what": parts}, str(RUNS * STEP))


def legend() -> list[Shape]:
    """One bar for each state, with its name."""
    return [Shape(str(state), _path([(0, height)]), str(name)) for state, (name, height) in STATES.items()]


def _shapes(bars: dict[str, list[tuple[int, float]]]) -> tuple[Shape, ...]:
    return tuple(Shape(kind, _path(found)) for kind, found in bars.items() if found)


def _path(bars: Iterable[tuple[int, float]]) -> str:
    return "".join(f"M{position * STEP} {HEIGHT}v-{height:.3g}h{BAR}v{height:.3g}z" for position, height in bars)
