"""P07, P30, N17: whose a key is, decided while somebody else is at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_reliable_jobs import control
from django_reliable_jobs.decorators import JobHandle
from django_reliable_jobs.models import Job
from tests.support.factories import EchoFactory, JobCheckpointFactory
from tests.support.probes.jobs import echo, noop
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


def handler(value: Any = None) -> None:
    """What it does is of no matter."""


BEFORE = JobHandle(handler, "shop.bill")
AFTER = JobHandle(handler, "billing.bill", aliases=("shop.bill",))
KINDS = ["unique_key", "idempotency_key"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize(("first_name", "second_name"), [(BEFORE, AFTER), (AFTER, BEFORE)])
def test_two_names_of_one_job_at_the_same_time_make_one_job(
    sessions: Callable[[], Session], first_name: JobHandle, second_name: JobHandle, kind: Any, bulk: bool
) -> None:
    options: Any = {kind: "k"}
    first, second = sessions(), sessions()
    first.begin()
    theirs = first.do(first_name.using(**options).enqueue, 1)
    call = second_name.using(**options)
    answer = second.start(call.enqueue_many, [(2,)]) if bulk else second.start(call.enqueue, 2)
    second.waits_for(answer)
    first.commit()
    got = answer.result(60)
    assert (got[0] if bulk else got.pk) == theirs.pk
    assert Job.objects.count() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_two_jobs_with_one_text_do_not_wait_for_each_other(sessions: Callable[[], Session], kind: Any) -> None:
    options: Any = {kind: "k"}
    first, second = sessions(), sessions()
    first.begin()
    first.do(noop.using(**options).enqueue)
    assert second.do(echo.using(**options).enqueue, "mine").created, "it would have waited for the other one's commit"
    first.commit()
    assert Job.objects.count() == 2


@pytest.mark.parametrize("if_exists", ["keep", "replace"])
@pytest.mark.parametrize("cancelled", [True, False])
def test_an_enqueue_waits_for_whoever_is_cancelling_the_holder(
    sessions: Callable[[], Session], if_exists: Any, cancelled: bool
) -> None:
    held = EchoFactory(running=True, unique_key="k", args=["old"])
    person, caller = sessions(), sessions()
    person.begin()
    assert person.do(control.cancel, held.pk)
    answer = caller.start(echo.using(unique_key="k", if_exists=if_exists).enqueue, "new")
    caller.waits_for(answer)
    person.commit() if cancelled else person.rollback()
    got = answer.result(60)
    assert (got.created, got.pk != held.pk, got.args) == (cancelled, cancelled, ["new"] if cancelled else ["old"])


def test_a_replace_waits_for_the_checkpoint_of_an_attempt_that_is_still_about(sessions: Callable[[], Session]) -> None:
    """It commits after all; what it saved is not what the new call begins with."""
    held = EchoFactory(failed=True, unique_key="k")
    JobCheckpointFactory(job=held, fencing_token=held.fencing_token, value={"row": 1})
    old, caller = sessions(), sessions()
    old.begin()
    old.sql("UPDATE django_reliable_jobs_jobcheckpoint SET value = '{\"row\": 2}', version = version + 1")
    answer = caller.start(echo.using(unique_key="k", if_exists="replace").enqueue, "new")
    caller.waits_for(answer)
    old.commit()
    assert answer.result(60).args == ["new"]
    saved = Job.objects.get(pk=held.pk).checkpoint
    assert saved.value is None
    assert saved.fencing_token > held.fencing_token
