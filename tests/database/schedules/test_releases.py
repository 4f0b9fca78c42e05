"""Versions that live beside each other: warned of, named by RELEASE; and pauses, which outlive the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.test.utils import override_settings

from django_reliable_jobs.control.schedules import UnknownSchedule, pause_schedule, resume_schedule, save_schedule
from django_reliable_jobs.worker.maintenance import schedule_sync
from django_reliable_jobs.worker.maintenance.schedule_sync import ALIVE, EVERY
from tests.support.schedules.tools import row
from tests.support.schedules.versions import Monotonic, Worker, age, live, rows

pytestmark = pytest.mark.django_db


def test_a_version_that_lives_is_not_replaced_silently(monotonic: Monotonic, caplog: pytest.LogCaptureFixture) -> None:
    """P17: pods of one app with different sets by a setting; only the newer set is in force, and both say so."""
    eu, us = Worker(daily="0 6 * * *", eu="0 1 * * *"), Worker(daily="0 6 * * *", us="0 2 * * *")
    caplog.set_level("INFO")
    eu.look()
    assert "WARNING" not in caplog.text
    us.look()
    assert rows() == {"daily": "0 6 * * *", "us": "0 2 * * *"}
    [said] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the schedules of shop are from now on as this worker's code defines them" in said.getMessage()
    assert "RELEASE" in said.getMessage()
    assert "schedule eu is not defined any more, it is taken away" in caplog.text
    caplog.clear()
    live(monotonic, schedule_sync.NOT_IN_FORCE + 4 * EVERY, eu, us)
    [said] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the schedules of shop are not as this worker's code says" in said.getMessage()


def test_after_the_others_have_gone_a_new_version_is_no_warning(
    monotonic: Monotonic, caplog: pytest.LogCaptureFixture
) -> None:
    Worker(daily="0 6 * * *").look()
    age(ALIVE + 1)
    Worker(daily="0 7 * * *").look()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


class Released(Worker):
    """A worker of a deployment with a RELEASE of its own."""

    def __init__(self, release: str | None, **schedules: str) -> None:
        super().__init__(**schedules)
        self.release = release

    @contextmanager
    def code(self) -> Iterator[None]:
        with super().code(), override_settings(RELIABLE_JOBS={"RELEASE": self.release}):
            yield


def test_sets_with_a_release_of_their_own_live_beside_each_other(
    monotonic: Monotonic, caplog: pytest.LogCaptureFixture
) -> None:
    eu, us = Released("eu", daily="0 6 * * *", eu="0 1 * * *"), Released("us", daily="0 6 * * *", us="0 2 * * *")
    both = {"daily": "0 6 * * *", "eu": "0 1 * * *", "us": "0 2 * * *"}
    eu.look()
    us.look()
    live(monotonic, 2 * ALIVE, eu, us)
    assert rows() == both
    assert {name: row(name).source for name in both} == {"daily": "shop@eu", "eu": "shop@eu", "us": "shop@us"}
    assert not [record for record in caplog.records if record.levelno > 20], "what both define alike belongs to one"
    newer = Released("us", daily="0 6 * * *", us="0 3 * * *")
    newer.look()
    live(monotonic, ALIVE, eu, us, newer)
    assert rows() == both | {"us": "0 3 * * *"}
    live(monotonic, ALIVE + 2 * EVERY, newer)
    assert (rows(), row("daily").source) == (both | {"us": "0 3 * * *"}, "shop@us"), "those that live take over"


def test_what_two_releases_define_differently_is_said(monotonic: Monotonic, caplog: pytest.LogCaptureFixture) -> None:
    eu, us = Released("eu", daily="0 6 * * *"), Released("us", daily="0 7 * * *")
    eu.look()
    us.look()
    live(monotonic, 2 * ALIVE, eu, us)
    assert rows() == {"daily": "0 6 * * *"}
    assert caplog.text.count("schedule daily of shop@us is defined by shop@eu too, whose it stays") == 1


def test_the_set_of_a_release_that_nobody_has_had_for_a_day_is_taken_away(monotonic: Monotonic) -> None:
    Released(None, old="0 5 * * *").look()
    Released("eu", eu="0 1 * * *").look()
    us = Released("us", us="0 2 * * *")
    us.look()
    live(monotonic, 2 * ALIVE, us)
    assert set(rows()) == {"old", "eu", "us"}
    age(schedule_sync.ABANDONED)
    us.look()
    assert set(rows()) == {"old", "eu", "us"}, "after an outage nobody has been seen for long"
    live(monotonic, ALIVE + EVERY, us)
    assert set(rows()) == {"us"}


def test_a_pause_outlives_the_row() -> None:
    """P16: pause, deploy a version without it, roll back."""
    Worker(daily="0 6 * * *", other="0 5 * * *").look()
    pause_schedule("daily")
    Worker(other="0 5 * * *").look()
    assert set(rows()) == {"other"}
    Worker(daily="0 7 * * *", other="0 5 * * *").look()
    assert (row("daily").paused, row("other").paused) == (True, False)
    resume_schedule("daily")
    Worker(other="0 4 * * *").look()
    Worker(daily="0 8 * * *").look()
    assert not row("daily").paused, "it was resumed"


def test_a_pause_can_be_ended_while_the_code_does_not_define_the_schedule() -> None:
    Worker(daily="0 6 * * *").look()
    pause_schedule("daily")
    Worker().look()
    assert resume_schedule("daily")
    with pytest.raises(UnknownSchedule):
        resume_schedule("daily")
    Worker(daily="0 7 * * *").look()
    assert not row("daily").paused


def test_a_pause_is_no_matter_of_a_schedule_that_a_person_makes() -> None:
    Worker(daily="0 6 * * *").look()
    pause_schedule("daily")
    Worker().look()
    assert not save_schedule("daily", "tests.synced", "0 3 * * *").paused


def test_a_schedule_that_moves_to_another_app_keeps_its_pause() -> None:
    Worker("shop", ("shop", "reports"), daily="0 6 * * *").look()
    pause_schedule("daily")
    Worker("reports", ("shop", "reports"), daily="0 6 * * *").look()
    assert (row("daily").source, row("daily").paused) == ("reports", True)


def test_the_pause_survives_every_deploy(monotonic: Monotonic) -> None:
    old = Worker(daily="0 6 * * *")
    old.look()
    pause_schedule("daily")
    new = Worker(daily="0 7 * * *")
    new.look()
    live(monotonic, ALIVE + 2 * EVERY, old, new)
    assert (row("daily").paused, row("daily").expression) == (True, "0 7 * * *")
