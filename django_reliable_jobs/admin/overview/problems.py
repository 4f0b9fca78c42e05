"""What is wrong, in words, the worst first: what somebody on call reads before anything else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_reliable_jobs.admin.overview.words import count, number, percent, span
from django_reliable_jobs.operations.overview.figures import Overview, WorkerFigures
from django_reliable_jobs.operations.overview.queues import QueueFigures
from django_reliable_jobs.operations.overview.schedules import RunState, ScheduleFigures

#: Seconds that a job may be due before it is worth a word, and before it is bad.
LONG, TOO_LONG = 60, 600
#: Shares of attempts that fail, and how many failures it takes to speak of a share.
MANY, MOST, ENOUGH = 0.1, 0.5, 5
#: Seconds that a schedule may be late.
OVERDUE = 60
#: Workers that are named; seconds after which a lost one is no news any more: others do its work.
MOST_NAMES, FORGOTTEN = 3, 600
ERROR, WARNING = "error", "warning"


class Links(Protocol):
    """Where a problem leads; empty where the user may not look."""

    def jobs(self, queue: str, status: str) -> str: ...
    def failures(self, queue: str) -> str: ...
    def worker(self, pk: object) -> str: ...
    def schedule(self, pk: object) -> str: ...
    def run(self, pk: object) -> str: ...
    def runs(self, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """`key` is the same for as long as it is the same problem, while its text counts on."""

    level: str
    key: str
    text: str
    url: str = ""


def problems(found: Overview, links: Links, *, workers_known: bool) -> list[Problem]:
    """`workers_known`: the user may see workers, so their absence means something."""
    every = [
        *(_fleet(found) if workers_known else ()),
        *(problem for queue in found.queues for problem in _queue(queue, found, links, workers_known)),
        *(problem for schedule in found.schedules for problem in _schedule(schedule, links)),
        *_unable(found, links),
        *_workers(found, links),
    ]
    return sorted(every, key=lambda problem: problem.level != ERROR)


def _fleet(found: Overview) -> Iterator[Problem]:
    if found.at_work:
        return
    if any(queue.ready for queue in found.queues):
        yield Problem(ERROR, "fleet", _("No worker is at work, and jobs are waiting."))
    else:
        yield Problem(WARNING, "fleet", _("No worker is at work."))


def _queue(queue: QueueFigures, found: Overview, links: Links, workers_known: bool) -> Iterator[Problem]:
    name = queue.name
    if queue.ready and queue.paused:
        text = ngettext(
            "The queue %(queue)s is paused, and %(count)s job waits.",
            "The queue %(queue)s is paused, and %(count)s jobs wait.",
            queue.ready.value,
        )
        yield Problem(
            WARNING, f"paused:{name}", text % {"queue": name, "count": count(queue.ready)}, links.jobs(name, "QUEUED")
        )
    elif queue.ready:
        unserved = workers_known and found.at_work and not any(worker.serves(name) for worker in found.at_work)
        if unserved and not found.more_workers:
            text = ngettext(
                "No worker takes jobs of the queue %(queue)s, and %(count)s waits.",
                "No worker takes jobs of the queue %(queue)s, and %(count)s wait.",
                queue.ready.value,
            )
            yield Problem(
                ERROR,
                f"unserved:{name}",
                text % {"queue": name, "count": count(queue.ready)},
                links.jobs(name, "QUEUED"),
            )
        elif (queue.oldest or 0) > LONG:
            text = _("Jobs of the queue %(queue)s wait: the first for %(span)s, %(count)s in all.")
            values = {"queue": name, "span": span(queue.oldest or 0), "count": count(queue.ready)}
            level = ERROR if (queue.oldest or 0) > TOO_LONG else WARNING
            yield Problem(level, f"waiting:{name}", text % values, links.jobs(name, "QUEUED"))
    if queue.dead_lately:
        text = ngettext(
            "%(count)s job of the queue %(queue)s went DEAD in the last hour, %(span)s ago.",
            "%(count)s jobs of the queue %(queue)s went DEAD in the last hour, the last one %(span)s ago.",
            queue.dead_lately,
        )
        shown = f"{number(queue.dead_lately)}{'+' if queue.dead.capped else ''}"
        values = {"queue": name, "count": shown, "span": span(queue.last_death or 0)}
        yield Problem(ERROR, f"dead:{name}", text % values, links.jobs(name, "DEAD"))
    rate, failures = queue.hour.failure_rate, queue.hour.failed_total
    if rate is not None and rate >= MANY and failures >= ENOUGH:
        text = _("%(percent)s of the attempts in the queue %(queue)s failed in the last hour.")
        level = ERROR if rate >= MOST else WARNING
        yield Problem(level, f"failures:{name}", text % {"queue": name, "percent": percent(rate)}, links.failures(name))
    if queue.lost:
        text = ngettext(
            "%(count)s running job of the queue %(queue)s has lost its worker and is not taken over yet.",
            "%(count)s running jobs of the queue %(queue)s have lost their worker and are not taken over yet.",
            queue.lost,
        )
        yield Problem(
            WARNING, f"lost:{name}", text % {"queue": name, "count": number(queue.lost)}, links.jobs(name, "RUNNING")
        )


def _schedule(schedule: ScheduleFigures, links: Links) -> Iterator[Problem]:
    name, url, last = schedule.name, links.schedule(schedule.id), schedule.last_run
    if schedule.broken:
        yield Problem(
            ERROR,
            f"schedule-broken:{name}",
            _("The schedule %(name)s is broken, and does not fire.") % {"name": name},
            url,
        )
    elif schedule.overdue is not None and schedule.overdue > OVERDUE:
        text = _("The schedule %(name)s should have fired %(span)s ago.")
        yield Problem(ERROR, f"schedule-overdue:{name}", text % {"name": name, "span": span(schedule.overdue)}, url)
    if last is not None and last.state is RunState.DEAD:
        yield Problem(
            ERROR, f"schedule-last:{name}", _("The last run of the schedule %(name)s is dead.") % {"name": name}, url
        )
    elif last is not None and last.state is RunState.ERROR:
        yield Problem(
            ERROR,
            f"schedule-last:{name}",
            _("The last run of the schedule %(name)s could not be enqueued.") % {"name": name},
            url,
        )
    elif last is not None and last.state is RunState.FAILING:
        text = _("The last run of the schedule %(name)s has failed, and will be tried again.")
        yield Problem(WARNING, f"schedule-last:{name}", text % {"name": name}, url)


def _unable(found: Overview, links: Links) -> Iterator[Problem]:
    """Workers that say that they cannot do their work: one line for all that say the same."""
    said: dict[str, list[WorkerFigures]] = {}
    for worker in found.workers:
        if worker.problem and not worker.stale:
            said.setdefault(worker.problem, []).append(worker)
    for text, workers in said.items():
        names = ", ".join(f"{worker.host}:{worker.pid}" for worker in workers[:MOST_NAMES])
        names += " …" if len(workers) > MOST_NAMES else ""
        url = links.worker(workers[0].id) if len(workers) == 1 else ""
        words = _("The worker %(names)s cannot do all its work: %(problem)s")
        yield Problem(ERROR, f"unable:{names}", words % {"names": names, "problem": text}, url)


def _workers(found: Overview, links: Links) -> Iterator[Problem]:
    lately = (worker for worker in found.workers if worker.stale and worker.unseen < FORGOTTEN)
    stale = sorted(lately, key=lambda worker: worker.unseen)
    if not stale:
        return
    names = ", ".join(f"{worker.host}:{worker.pid}" for worker in stale[:MOST_NAMES])
    text = ngettext(
        "The worker %(names)s was last seen %(span)s ago.",
        "%(count)s workers were not seen lately, the last of them %(span)s ago: %(names)s",
        len(stale),
    )
    values = {"names": names + (" …" if len(stale) > MOST_NAMES else ""), "span": span(stale[0].unseen)}
    url = links.worker(stale[0].id) if len(stale) == 1 else ""
    yield Problem(WARNING, "stale", text % (values | {"count": number(len(stale))}), url)
