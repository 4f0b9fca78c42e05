"""Jobs that do on a page what a test wants to see there. A `Mark` is how the test speaks to them."""

from __future__ import annotations

import time
from typing import Any

from django_reliable_jobs import JobContext, PermanentFailure, job
from tests.support.probes.models import Mark


@job(name="browser.charge_card", queue="payments", max_attempts=2, backoff=[0.1], redact=["card"])
def charge_card(order: str, card: str = "") -> str:
    """Fails until the bank has said that it is back; it fails for good if it goes on for two attempts."""
    if not Mark.objects.filter(label=f"{order}: the bank is back").exists():
        raise ConnectionError("the bank does not answer")
    return f"{order} is paid"


@job(name="browser.import_books", queue="imports", takes_context=True, timeout=300)
def import_books(ctx: JobContext, label: str) -> int:
    """A book at a time, for as long as nobody cancels it or says that there are no more."""
    for done in range(1, 1_000_000):
        ctx.check()
        ctx.progress(min(done, 999), 1000, f"{label}: book {done}")
        if Mark.objects.filter(label=f"{label}: no more").exists():
            return done
        time.sleep(0.05)
    return 0


@job(name="browser.send_report", queue="reports")
def send_report(label: str = "daily") -> str:
    Mark.objects.create(label=f"{label}: sent")
    return label


@job(name="browser.says", queue="words", max_attempts=1)
def says(text: str, times: int = 1) -> None:
    """Fails with `text`, also in its traceback, `times` times over."""
    raise PermanentFailure(text * times)


@job(name="browser.keep", queue="words")
def keep(value: Any) -> Any:
    return value
