"""The figures as the overview's tables show them: texts, charts and links, so that the templates only place them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from django_reliable_jobs.admin.charts import STATES, Chart, columns, strip
from django_reliable_jobs.admin.overview.problems import MANY, Links
from django_reliable_jobs.admin.overview.words import count, number, percent, span
from django_reliable_jobs.operations.overview.figures import Overview, WorkerFigures
from django_reliable_jobs.operations.overview.queues import QueueFigures
from django_reliable_jobs.operations.overview.schedules import ScheduleFigures


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure; `bad` and `quiet` are how it is set off, `note` stands small beneath."""

    text: str
    url: str = ""
    note: str = ""
    bad: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class QueueRow:
    name: str
    url: str
    paused: bool
    ready: Cell
    running: Cell
    failed: Cell
    dead: Cell
    throughput: Chart
    throughput_text: str
    failures: Chart
    failures_text: str
    failures_bad: bool
    idle: bool


@dataclass(frozen=True, slots=True)
class WorkerRow:
    figures: WorkerFigures
    url: str
    seen: str
    up: str


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    figures: ScheduleFigures
    url: str
    runs_url: str
    next_text: str
    next_note: str
    overdue: bool
    last_text: str
    last_note: str
    last_url: str
    last_kind: str
    strip: Chart


def queue_row(queue: QueueFigures, found: Overview, links: Links) -> QueueRow:
    hour, rate = queue.hour, queue.hour.failure_rate
    most = max(hour.done)
    done = f"{_('about') + ' ' if hour.estimated else ''}{number(hour.done_total)}"
    peak = _("%(count)s done in the last hour, at most %(most)s in two minutes") % {"count": done, "most": number(most)}
    shares = [_share(done, failed) for done, failed in zip(hour.done, hour.failed, strict=True)]
    failed = f"{number(hour.failed_total)}{'+' if hour.failed_capped else ''}"
    rate_text = _("none ended") if rate is None else percent(rate)
    label = _("%(percent)s of the attempts of the last hour failed: %(count)s") % {
        "percent": rate_text,
        "count": failed,
    }
    if hour.failed_capped:
        label += _("; only the newest are known")
    waited = "" if queue.oldest is None else _("oldest %(span)s") % {"span": span(queue.oldest)}
    lately = _("%(count)s in the last hour") % {"count": number(queue.dead_lately)} if queue.dead_lately else ""
    return QueueRow(
        name=queue.name,
        url=links.jobs(queue.name, ""),
        paused=queue.paused,
        ready=_cell(queue.ready.value, count(queue.ready), links.jobs(queue.name, "QUEUED"), waited),
        running=_cell(
            queue.running.value,
            count(queue.running),
            links.jobs(queue.name, "RUNNING"),
            _("%(count)s without a worker") % {"count": number(queue.lost)} if queue.lost else "",
        ),
        failed=_cell(queue.failed.value, count(queue.failed), links.jobs(queue.name, "FAILED")),
        dead=_cell(queue.dead.value, count(queue.dead), links.jobs(queue.name, "DEAD"), lately, bad=True),
        throughput=columns(hour.done, peak, "done"),
        throughput_text=done,
        failures=columns(shares, label, "dead", top=1.0),
        failures_text="–" if rate is None else percent(rate),
        failures_bad=rate is not None and rate >= MANY,
        idle=queue.idle,
    )


def worker_row(worker: WorkerFigures, links: Links) -> WorkerRow:
    return WorkerRow(worker, links.worker(worker.id), _ago(worker.unseen), span(worker.age))


def schedule_row(schedule: ScheduleFigures, found: Overview, links: Links) -> ScheduleRow:
    last = schedule.last_run
    next_text = next_note = ""
    overdue = schedule.overdue is not None and schedule.overdue > 60
    if schedule.next_fire_at is not None and not schedule.paused and not schedule.broken:
        late = schedule.overdue or 0.0
        next_text = (
            _("%(span)s overdue") % {"span": span(late)} if overdue else _("in %(span)s") % {"span": span(-late)}
        )
        next_note = moment(schedule.next_fire_at, found.now)
    return ScheduleRow(
        figures=schedule,
        url=links.schedule(schedule.id),
        runs_url=links.runs(schedule.name),
        next_text=next_text,
        next_note=next_note,
        overdue=overdue,
        last_text="" if last is None else _ago((found.now - last.scheduled_for).total_seconds()),
        last_note="" if last is None else str(STATES[last.state][0]),
        last_url="" if last is None else links.run(last.id),
        last_kind="" if last is None else str(last.state),
        strip=strip(schedule.runs),
    )


def moment(when: datetime, now: datetime) -> str:
    """A time in the current zone, with its date if that is not today's."""
    local, today = _local(when), _local(now).date()
    kind = "TIME_FORMAT" if local.date() == today else "SHORT_DATETIME_FORMAT"
    return str(formats.date_format(local, kind))


def _local(when: datetime) -> datetime:
    return timezone.localtime(when) if timezone.is_aware(when) else when


def _cell(value: int, text: str, url: str, note: str = "", *, bad: bool = False) -> Cell:
    return Cell(text, url if value else "", note, bad=bad and bool(value), quiet=not value)


def _share(done: float, failed: int | None) -> float | None:
    if failed is None:
        return None
    return failed / (done + failed) if failed else 0.0


def _ago(seconds: float) -> str:
    return _("%(span)s ago") % {"span": span(seconds)}
