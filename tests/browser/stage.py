"""Something on every page: a shop after a bad hour. The rows look like those of a fleet; none of them is ever claimed."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_reliable_jobs import control
from django_reliable_jobs.control.schedules import save_schedule
from django_reliable_jobs.models import CronRun, CronSchedule, Fence, GuardClaim, Job, JobAttempt, JobStatus, QueueState
from tests.support.factories import JobAttemptFactory, JobCheckpointFactory, JobFactory, WorkerFactory, ago, next_token

APP = "django_reliable_jobs"

TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 118, in send_invoice
    services.send_mail(ctx.idempotency_key, invoice.order.customer.email, subject)
  File "/srv/shop/services.py", line 54, in send_mail
    raise ProviderBusy("421 4.7.0 try again later")
shop.services.ProviderBusy: 421 4.7.0 try again later
"""


def set_the_stage() -> dict[str, str]:
    """Returns each page's address, below the admin's root."""
    dice = random.Random(8)
    control.pause_queue("newsletter")  # before its jobs are there to claim
    worker = WorkerFactory(host="web-2", pid=4711, version="0.1.0", slots=8, busy=3, queues="all queues")
    _last_hour(dice)
    dead = _dead_job()
    running = _running_job(worker)
    schedule, run = _schedule()
    claim = GuardClaim.objects.create(
        key="exclusive:rebuild-index", owner="web-2:4711:5f", fencing_token=next_token(), claimed_at=ago(300),
        expires_at=ago(-3600),
    )  # fmt: skip
    fence = Fence.objects.create(name="search-index", fencing_token=next_token(), passed_at=ago(40))
    return {
        "index": f"{APP}/",
        "overview": f"{APP}/queuestate/overview/",
        "jobs": f"{APP}/job/",
        "dead jobs": f"{APP}/job/?status=DEAD",
        "a dead job": f"{APP}/job/{dead.pk}/change/",
        "a running job": f"{APP}/job/{running.pk}/change/",
        "confirm a retry": f"{APP}/job/act/?verb=retry&ids={dead.pk}",
        "confirm a priority": f"{APP}/job/act/?verb=priority&filters=status%3DQUEUED",
        "choose a verb": f"{APP}/job/act/?filters=status%3DDEAD",
        "history of a job": f"{APP}/job/{dead.pk}/history/",
        "schedules": f"{APP}/cronschedule/",
        "a schedule": f"{APP}/cronschedule/{schedule.pk}/change/",
        "a new schedule": f"{APP}/cronschedule/add/",
        "backfill": f"{APP}/cronschedule/{schedule.pk}/backfill/",
        "delete a schedule": f"{APP}/cronschedule/{schedule.pk}/delete/",
        "cron runs": f"{APP}/cronrun/",
        "a cron run": f"{APP}/cronrun/{run.pk}/change/",
        "workers": f"{APP}/worker/",
        "a worker": f"{APP}/worker/{worker.pk}/change/",
        "queues": f"{APP}/queuestate/",
        "a queue": f"{APP}/queuestate/newsletter/change/",
        "guard claims": f"{APP}/guardclaim/",
        "a guard claim": f"{APP}/guardclaim/{claim.pk}/change/",
        "fences": f"{APP}/fence/",
        "a fence": f"{APP}/fence/{fence.pk}/change/",
    }


def _last_hour(dice: random.Random) -> None:
    """Finished jobs over the last hour in three queues, and some that wait in one that is paused."""
    for queue, name, count, failing in (
        ("mail", "shop.send_invoice", 300, 0.12),
        ("stock", "shop.reserve_stock", 180, 0.0),
        ("search", "shop.index_product", 90, 0.02),
    ):
        made = []
        for _ in range(count):
            ended = timezone.now() - timedelta(seconds=dice.triangular(20, 3500, 900))
            made.append(_finished(queue, name, ended, dice))
        Job.objects.bulk_create(made)
        JobAttempt.objects.bulk_create(
            JobAttempt(
                job=job, fencing_token=next_token(), attempt=1, status=JobStatus.FAILED, finished_at=job.finished_at,
                error_kind="shop.services.ProviderBusy", error_message="421 4.7.0 try again later",
            )
            for job in made
            if dice.random() < failing
        )  # fmt: skip
    JobFactory.create_batch(12, queue="newsletter", name="shop.send_newsletter", run_at=ago(900), priority=-50)


def _finished(queue: str, name: str, ended: Any, dice: random.Random) -> Job:
    return Job(
        name=name, queue=queue, args=[dice.randrange(10_000)], status=JobStatus.DONE, attempts=1, max_attempts=5,
        fencing_token=next(_TOKENS), run_at=ended, created_at=ended, started_at=ended, finished_at=ended,
    )  # fmt: skip


_TOKENS = itertools.count(1)


def _dead_job() -> Job:
    job = JobFactory(
        dead=True, queue="mail", name="shop.send_invoice", args=[4711], reason="attempts used up", attempts=3, max_attempts=3,
        timeout=30, created_at=ago(240), run_at=ago(240), idempotency_key="invoice:4711",
    )  # fmt: skip
    for attempt, seconds in ((1, 180), (2, 120), (3, 30)):
        JobAttemptFactory(
            job=job, attempt=attempt, status=JobStatus.DEAD if attempt == 3 else JobStatus.FAILED, traceback=TRACEBACK,
            error_kind="shop.services.ProviderBusy", error_message="421 4.7.0 try again later",
            started_at=ago(seconds + 2), finished_at=ago(seconds),
        )  # fmt: skip
    for number in range(3):
        JobFactory(dead=True, queue="mail", name="shop.send_invoice", args=[4712 + number], reason="permanent failure")
    return job


def _running_job(worker: Any) -> Job:
    job = JobFactory(
        running=True, queue="imports", name="shop.import_records", args=[7], locked_by=worker.pk, locked_until=ago(-3600),
        timeout=600, progress={"done": 60, "total": 100, "message": "The Left Hand of Darkness was the last one"},
    )  # fmt: skip
    JobCheckpointFactory(job=job, fencing_token=job.fencing_token, value={"done": 60}, version=3)
    return job


def _schedule() -> tuple[CronSchedule, CronRun]:
    save_schedule("reconcile-ledgers", "shop.reconcile", "@every 1h", overlap="skip")
    schedule = save_schedule("stock-report", "shop.stock_report", "0 6 * * *", timezone="Asia/Ho_Chi_Minh")
    today = timezone.now().replace(hour=23, minute=0, second=0, microsecond=0) - timedelta(days=1)
    run = None
    for days in range(20, -1, -1):
        when = today - timedelta(days=days)
        outcome, status = "enqueued", JobStatus.DONE.value
        if days in (5, 13):
            outcome, status = "enqueued", JobStatus.DEAD.value
        if days == 9:
            outcome, status = "skipped_misfire", ""
        run = CronRun.objects.create(
            name=schedule.name, scheduled_for=when, outcome=outcome, job_status=status, fired_at=when,
            job_finished_at=when if status else None, skipped_count=int(not status),
        )  # fmt: skip
    assert run is not None
    return schedule, run


def unset() -> None:
    """What would disturb others: the paused queue with its jobs."""
    Job.objects.filter(queue="newsletter").delete()
    QueueState.objects.filter(queue="newsletter").delete()
