"""The public API as a typing test: mypy (strict) and pyright read this, nobody runs it.

What has to be an error is marked for both: a mark that is not needed is an error itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_type

from django_reliable_jobs import Backoff, JobContext, JobStatus, cron, current_job, every, job
from django_reliable_jobs.models import Job


@job
def send(order_id: int, *, urgent: bool = False) -> str:
    return f"{order_id} {urgent}"


@job(queue="mail", priority=5, timeout=timedelta(minutes=1), backoff=Backoff(base=1), dead_on=[KeyError])
def remind(address: str, times: int = 1) -> None: ...


@job(takes_context=True)
def report(ctx: JobContext, month: str) -> int:
    return ctx.attempt


@job
async def fetch(url: str) -> bytes:
    return url.encode()


@job(takes_context=True, max_attempts=None)
async def mirror(ctx: JobContext, url: str) -> bool:
    return ctx.attempt == 1


@every(minutes=5)
@cron("0 3 * * *", timezone="Asia/Ho_Chi_Minh", args=("2026-01",))
@job(takes_context=True)
def nightly(ctx: JobContext, month: str, scheduled_for: datetime | None = None) -> None: ...


@job()
def plain(number: int) -> None: ...


@job(queue="reports")
def of_a_fire(scheduled_for: datetime, *pages: int) -> None: ...


class Shop:
    @job
    @staticmethod
    def restock(sku: str) -> None: ...


@cron("@daily", misfires="all")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
@every(60, overlap=3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
@job
def has_wrong_rules() -> None: ...


def enqueues() -> None:
    made = send.enqueue(1, urgent=True)
    assert_type(made, Job)
    assert made.status == JobStatus.QUEUED
    send.enqueue(order_id=1)
    send.enqueue("1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    send.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    send.enqueue(1, 2)  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]
    send.enqueue(1, urgently=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    remind.enqueue("a@example.org", times=2)
    remind.enqueue("a@example.org", "twice")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert_type(send.enqueue_many([(1,), {"order_id": 2}]), list[int])
    send.enqueue_many(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def enqueues_others() -> None:
    plain.enqueue("1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    of_a_fire.enqueue(datetime.now(), 1, 2)
    of_a_fire.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    Shop.restock.enqueue("a-1")
    Shop.restock.enqueue(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    plain.using(run_at="tomorrow")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def leaves_out_the_context() -> None:
    report.enqueue("2026-01")
    report.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    report.enqueue(current_job(), "2026-01")  # type: ignore[call-arg, arg-type] # pyright: ignore[reportCallIssue]
    nightly.enqueue("2026-01")
    nightly.enqueue("2026-01", scheduled_for=datetime.now())
    nightly.enqueue("2026-01", scheduled_for="now")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def key(address: str, times: int = 1) -> str:
    return address


def uses_options() -> None:
    later = remind.using(delay=60, unique_key=key, priority=3)
    assert_type(later.enqueue("a@example.org"), Job)
    later.enqueue(7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    later.using(queue_name="mail", run_after=timedelta(days=1)).enqueue("a@example.org", 2)
    remind.using(delai=60)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    remind.using(if_exists="perhaps")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    report.using(run_at=datetime.now()).enqueue(5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def runs_here() -> None:
    assert_type(send.call(1), str)
    assert_type(report.call("2026-01"), int)
    send.call("1")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def awaits() -> None:
    assert_type(await fetch.acall("x"), bytes)
    assert_type(await mirror.acall("x"), bool)
    assert_type(await send.acall(1), str)
    assert_type(await send.aenqueue(1), Job)
    assert_type(await mirror.using(delay=1).aenqueue("x"), Job)
    assert_type(await send.aenqueue_many([(1,)]), list[int])
    await send.aenqueue_many(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await fetch.aenqueue(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await fetch.acall(1)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
    await mirror.aenqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


@job(takes_context=True)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
def has_no_context() -> None: ...


@job(isolation="fork")  # type: ignore[call-overload, untyped-decorator] # pyright: ignore[reportArgumentType]
def is_isolated_wrongly() -> None: ...
