"""What is to become of a schedule that is due: from its row, by the rules of `schedules`. Writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import groupby

from django_reliable_jobs.definitions.job import JobDefinition
from django_reliable_jobs.definitions.schedule import MAX_PAUSE_AFTER
from django_reliable_jobs.firing.runs import MOST_RUNS, runs_with_jobs, skipped
from django_reliable_jobs.schedules import (
    Action,
    ScheduleError,
    Stretch,
    Unfinished,
    as_timetable,
    decide_all,
    plan,
)
from django_reliable_jobs.store.schedules.due import Due
from django_reliable_jobs.store.schedules.fire import Firing, Outcome, Run

#: Seconds until a fire time that waits for a running job is looked at again.
WAIT = 1.0
PAUSED = "the schedule was paused while it waited"


#: More skipped fire times in a row than this are one run.
LONG_STRETCH = 100
#: What is due for longer than this is neither made up for nor counted: a row from the start of the calendar takes no longer
#: than others. The longest `catch_up_window` is ten years.
OLDEST = timedelta(days=20 * 365)


def plan_firing(due: Due, job: JobDefinition) -> Firing:
    """Raises what is wrong with the row: ScheduleError, ValueError, TypeError, OverflowError."""
    timetable, rules = as_timetable(due.expression, due.timezone), due.rules()
    waiting_for = due.waiting_for
    if due.pause_after_failures is not None and not 0 < due.pause_after_failures <= MAX_PAUSE_AFTER:
        raise ScheduleError(f"pause_after_failures must be from 1 to {MAX_PAUSE_AFTER}", "pause_after_failures")
    if due.pause_after_failures is not None and due.dead_lately >= due.pause_after_failures:
        dropped = [] if waiting_for is None else [skipped(waiting_for, PAUSED)]
        return Firing(due, due.fired_through, None, dropped, pause=True)
    planned = plan(timetable, rules, max(due.fired_through, due.now - OLDEST), due.now)
    firing = Firing(due, planned.fired_through, planned.next_fire)
    if (late := planned.skipped) is not None:
        firing.runs.append(
            Run(late.first, Outcome.SKIPPED_MISFIRE, skipped_through=late.last, skipped_count=late.count)
        )
    unfinished = Unfinished(due.running, len(due.unfinished) - due.running)
    enqueued: list[datetime] = []
    if waiting_for is not None:
        if unfinished:
            firing.waiting_for = waiting_for
        else:
            enqueued.append(waiting_for)
        unfinished = Unfinished(unfinished.running, unfinished.waiting + 1)
    decided = _stretches(decide_all(rules.overlap, unfinished, planned.enqueue))
    if len(decided) > MOST_RUNS:
        # The rest is due still: `fired_through` comes as far as this step.
        firing.next_look = decided[MOST_RUNS][0].first
        del decided[MOST_RUNS:]
        firing.fired_through = decided[-1][0].last
    for stretch, action in decided:
        fire_time = stretch.first
        if action is Action.SKIP:
            firing.runs.append(skipped(fire_time, through=stretch.last, count=stretch.count))
        elif action is Action.ENQUEUE_BEHIND:
            firing.waiting_for = fire_time
        else:
            enqueued.append(fire_time)
            if action is Action.REPLACE:
                firing.cancel = due.unfinished
    firing.runs += runs_with_jobs(due, job, enqueued, timetable)
    if firing.waiting_for is not None:
        soon = due.now + timedelta(seconds=WAIT)
        firing.next_look = soon if firing.next_look is None else min(soon, firing.next_look)
    return firing


def _stretches(decided: list[tuple[datetime, Action]]) -> list[tuple[Stretch, Action]]:
    """Each fire time by itself, but for long rows of skipped ones."""
    result: list[tuple[Stretch, Action]] = []
    for action, group in groupby(decided, lambda each: each[1]):
        times = [fire_time for fire_time, _ in group]
        if action is Action.SKIP and len(times) > LONG_STRETCH:
            result.append((Stretch(times[0], times[-1], len(times)), action))
        else:
            result += [(Stretch(each, each, 1), action) for each in times]
    return result
