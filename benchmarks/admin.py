"""`python -m benchmarks.admin`: the admin's pages on large tables, and the retry of many dead jobs by a filter.

2 million finished jobs, 100,000 queued, 10,000 dead (60,000 for the retry), 2 million cron runs. Server time is that of the
whole request in this process, the database's included; the slowest and the median of some rounds, the first of which finds
the database's cache as the filling left it. A statement may take 2 seconds at most. The exit status is 1 where a page takes
300 ms or 30 queries, or the retry 20 s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from testproject.postgres import EmbeddedPostgres

FILL = Path(__file__).parent / "admin.sql"
DEAD_MORE = 50_000

RUNS = "cronrun"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="times the rows (default 1)")
    parser.add_argument("--rounds", type=int, default=5, help="requests of each page (default 5)")
    options = parser.parse_args()
    with EmbeddedPostgres(settings={"shared_buffers": "512MB"}) as server:
        os.environ["DATABASE_URL"] = server.create_database("admin")
        os.environ["DATABASE_OPTIONS"] = '{"options": "-c statement_timeout=2000"}'
        os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
        os.environ["LOG_LEVEL"] = "ERROR"
        import django

        django.setup()
        _fill(options.scale)
        failed = _pages(options.rounds)
        failed = _bulk(options.scale) or failed
    return int(failed)


def _fill(scale: float) -> None:
    from django.core.management import call_command
    from django.db import connection

    begin = time.monotonic()
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0; SET synchronous_commit = off")
        for statement in FILL.read_text().split(";\n"):
            if statement.strip():
                cursor.execute(statement.replace(":scale", str(scale)))
        cursor.execute("SELECT count(*), count(*) FILTER (WHERE status = 'DEAD') FROM django_reliable_jobs_job")
        jobs, dead = cursor.fetchone()
        cursor.execute("SELECT count(*) FROM django_reliable_jobs_cronrun")
        (runs,) = cursor.fetchone()
    connection.close()
    took = time.monotonic() - begin
    print(f"{jobs:,} jobs, {dead:,} of them DEAD, {runs:,} cron runs; filled in {took:.0f} s\n")


def _client() -> Any:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(raise_request_exception=True)
    client.force_login(User.objects.filter(username="bench").first() or User.objects.create_superuser("bench"))
    return client


def _addresses() -> dict[str, str]:
    from django.apps import apps
    from django.contrib import admin
    from django.urls import NoReverseMatch, reverse

    from django_reliable_jobs.models import Job

    def page(name: str, *args: Any) -> str:
        return reverse(f"admin:django_reliable_jobs_{name}", args=args)

    middle, dead = Job.objects.order_by("pk")[1000], Job.objects.filter(status="DEAD").order_by("-finished_at")[0]
    jobs = page("job_changelist")
    found = {
        "jobs": jobs,
        "jobs, page 2": f"{jobs}?p=2",
        "jobs, from the middle": f"{jobs}?from=[{middle.pk}]",
        "jobs, past hour": f"{jobs}?time=hour",
        "jobs of a queue": f"{jobs}?queue=mail",
        "jobs of a name, which is not there": f"{jobs}?name=nothing.like_it",
        "jobs of a schedule": f"{jobs}?schedule=schedule-3",
        "jobs of a worker": f"{jobs}?worker=00000000-0000-0000-0000-000000000007",
        "a search by id": f"{jobs}?q={middle.pk}",
        "a search by key": f"{jobs}?q=key-5000",
        "a search in the arguments": f"{jobs}?q=arg:nothing like it",
        "one job, DEAD": page("job_change", dead.pk),
        "retry all that match: the question": f"{page('job_act')}?verb=retry&filters=status%3DDEAD",
    }
    found |= {f"jobs, {status}": f"{jobs}?status={status}" for status, _ in Job._meta.get_field("status").choices}
    for model in apps.get_app_config("django_reliable_jobs").get_models():
        if admin.site.is_registered(model) and model is not Job:
            found[str(model._meta.verbose_name_plural)] = page(f"{model._meta.model_name}_changelist")
    if RUNS in {model._meta.model_name for model in admin.site._registry}:
        runs = page(f"{RUNS}_changelist")
        found |= {"cron runs, page 2": f"{runs}?p=2", "cron runs, a search": f"{runs}?q=schedule-3"}
    try:
        found["overview"] = page("overview")
    except NoReverseMatch:
        pass
    return found


def _pages(rounds: int) -> bool:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client, failed = _client(), False
    print(f"{'page':45} {'queries':>7} {'median':>8} {'slowest':>8}")
    for title, address in _addresses().items():
        took = []
        for _ in range(rounds):
            with CaptureQueriesContext(connection) as queries:
                begin = time.perf_counter()
                answer = client.get(address)
                took.append((time.perf_counter() - begin) * 1000)
            assert answer.status_code == 200, (address, answer.status_code)
        bad = statistics.median(took) > 300 or len(queries) > 30
        failed = failed or bad
        print(
            f"{title:45} {len(queries):7} {statistics.median(took):5.0f} ms {max(took):5.0f} ms{'  <--' if bad else ''}"
        )
    return failed


def _bulk(scale: float) -> bool:
    """Retry by a filter: as the page does it, POST after POST."""
    from django.db import connection
    from django.urls import reverse

    count = int(DEAD_MORE * scale)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(
            "UPDATE django_reliable_jobs_job SET status = 'DEAD', reason = 'permanent failure'"
            " WHERE id IN (SELECT id FROM django_reliable_jobs_job WHERE status = 'DONE' ORDER BY id DESC LIMIT %s)",
            [count],
        )
        cursor.execute("SELECT count(*) FROM django_reliable_jobs_job WHERE status = 'DEAD'")
        (dead,) = cursor.fetchone()
        cursor.execute("SET statement_timeout = 2000")
    client, address = _client(), reverse("admin:django_reliable_jobs_job_act")
    form = {"verb": "retry", "filters": "status=DEAD"}
    begin, turns, longest = time.monotonic(), 0, 0.0
    while True:
        turn = time.monotonic()
        answer = client.post(address, form, headers={"accept": "application/json"})
        longest, turns = max(longest, time.monotonic() - turn), turns + 1
        state = answer.json()
        if state["place"] is None:
            break
        form |= {"place": state["place"], "tally": state["tally"]}
    took = time.monotonic() - begin
    print(f"\nretry of {dead:,} dead jobs by a filter: {took:.1f} s, {turns} requests, the longest {longest:.1f} s")
    print(state["text"])
    return took > 20


if __name__ == "__main__":
    sys.exit(main())
