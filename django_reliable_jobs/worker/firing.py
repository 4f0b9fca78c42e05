"""What is to become of a schedule that is due: from its row, by the rules of `schedules`. Writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from django_reliable_jobs.definition import JobDefinition
from django_reliable_jobs.schedule_jobs import runs_with_jobs, skipped
from django_reliable_jobs.schedules import Action, FiringRules, Unfinished, as_timetable, decide_all, plan
from django_reliable_jobs.store.schedule_due import Due
from django_reliable_jobs.store.schedules import Firing, Outcome, Run

#: Seconds until a fire time that waits for a running job is looked at again.
WAIT = 1.0
PAUSED = "the schedule was paused while it waited"


def plan_firing(due: Due, job: JobDefinition) -> Firing:
    """Raises what is wrong with the row: ScheduleError, ValueError, TypeError, OverflowError."""
    timetable, rules = as_timetable(due.expression, due.timezone), FiringRules(**due.rules())
    waiting_for = due.waiting_for
    if due.pause_after_failures is not None and due.dead_lately >= due.pause_after_failures:
        dropped = [] if waiting_for is None else [skipped(waiting_for, PAUSED)]
        return Firing(due, due.fired_through, None, dropped, pause=True)
    planned = plan(timetable, rules, due.fired_through, due.now)
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
    for fire_time, action in decide_all(rules.overlap, unfinished, planned.enqueue):
        if action is Action.SKIP:
            firing.runs.append(skipped(fire_time))
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
