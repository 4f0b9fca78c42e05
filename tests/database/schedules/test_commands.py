"""`manage.py jobs schedules`, and what `manage.py check --database` says of broken ones."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import transaction

from django_reliable_jobs.models import CronSchedule, Job
from tests.support.schedules.clock import DatabaseClock
from tests.support.schedules.tools import fired, row, schedule, sql

pytestmark = pytest.mark.django_db


def jobs(*arguments: str) -> str:
    output = StringIO()
    call_command("jobs", "schedules", *arguments, stdout=output)
    return output.getvalue()


def test_the_list_says_what_each_does_next(clock: DatabaseClock) -> None:
    schedule()
    schedule("off", "@every 90")
    schedule("strange")
    jobs("pause", "off")
    sql("UPDATE django_reliable_jobs_cronschedule SET broken = 'no', starts_at = 'infinity' WHERE name = 'strange'")
    assert jobs("list").splitlines() == [
        "off  @every 90 (UTC)  probes.noop  paused",
        "report  0 * * * * (UTC)  probes.noop  next 2026-07-01 13:00:00+00:00",
        "strange  0 * * * * (UTC)  probes.noop  BROKEN: no",
    ]


def test_an_empty_list_says_so() -> None:
    """U13."""
    assert jobs("list").startswith("There is no schedule")
    assert len(jobs("list").splitlines()) == 1


def test_without_tables_there_is_one_sentence_and_no_traceback() -> None:
    """U13."""
    sql("ALTER TABLE django_reliable_jobs_cronschedule RENAME TO elsewhere")
    for arguments in (("list",), ("run", "x"), ("pause", "x")):
        with pytest.raises(CommandError, match=r"run manage.py migrate first\.$"), transaction.atomic():
            jobs(*arguments)


def test_run_pause_and_resume(clock: DatabaseClock) -> None:
    schedule()
    assert "is paused" in jobs("pause", "report")
    assert "was paused before" in jobs("pause", "report")
    said = jobs("run", "report")
    assert said == f"job {Job.objects.get().pk} is enqueued\n"
    assert "fires again" in jobs("resume", "report")
    assert "was not paused" in jobs("resume", "report")
    assert not row().paused


def test_backfill_reads_moments_in_any_offset(clock: DatabaseClock) -> None:
    schedule()
    assert jobs("backfill", "report", "2026-07-01T10:00+05:45", "2026-07-01 07:00") == "3 jobs are enqueued\n"
    assert fired() == ["07-01 05:00", "07-01 06:00", "07-01 07:00"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "reprot"), "reprot"),
        (("backfill", "report", "yesterday", "2026-07-01"), "yesterday"),
        (("backfill", "report", "2026-07-01", "2036-07-01"), "future"),
    ],
)
def test_what_cannot_be_done_is_said(clock: DatabaseClock, arguments: tuple[str, ...], says: str) -> None:
    schedule()
    with pytest.raises(CommandError, match=says):
        jobs(*arguments)


def warnings() -> list[str]:
    found = checks.run_checks(tags=[checks.Tags.database], databases=["default"])
    return [str(one.msg) for one in found if one.id == "reliable_jobs.W005"]


def test_the_check_of_the_database_names_those_that_do_not_fire(clock: DatabaseClock) -> None:
    """C14."""
    for name in ("fine", "marked", "zone", "rule"):
        schedule(name)
    assert warnings() == []
    for name, change in {
        "marked": {"broken": "it is so"}, "zone": {"timezone": "America/New_Yrok"}, "rule": {"overlap": "perhaps"},
    }.items():  # fmt: skip
        CronSchedule.objects.filter(name=name).update(**change)
    sql("UPDATE django_reliable_jobs_cronschedule SET starts_at = 'infinity' WHERE name = 'marked'")
    assert [line.split(" does")[0] for line in warnings()] == [
        "The schedule 'marked'", "The schedule 'rule'", "The schedule 'zone'",
    ]  # fmt: skip
    assert "did you mean America/New_York" in warnings()[2]
    assert not [one for one in checks.run_checks() if one.id == "reliable_jobs.W005"], "only when a database is named"
