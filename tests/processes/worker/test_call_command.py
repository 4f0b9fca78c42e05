"""`call_command("jobworker")` in somebody else's process: a test, a view (D10, U05)."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from django_reliable_jobs.models import Job, JobStatus
from tests.support.probes import jobs as probes


@pytest.mark.django_db(transaction=True)
def test_inside_atomic_it_is_refused_and_the_transaction_goes_on() -> None:
    with transaction.atomic():
        job = probes.noop.enqueue()
        with pytest.raises(CommandError, match=r"inside atomic\(\).*'default'.*TransactionTestCase"):
            call_command("jobworker", "--burst")
        assert Job.objects.filter(pk=job.pk).exists()
    assert Job.objects.get(pk=job.pk).status == JobStatus.QUEUED, "it is committed, and has not run"


class InATestCase(TestCase):
    def test_it_is_refused(self) -> None:
        job = probes.noop.enqueue()
        with self.assertRaisesMessage(CommandError, "instead of TestCase"):
            call_command("jobworker", burst=True)
        assert Job.objects.filter(pk=job.pk).exists()


class InATransactionTestCase(TransactionTestCase):
    def test_it_runs_what_is_due(self) -> None:
        job = probes.noop.enqueue()
        call_command("jobworker", burst=True)
        assert Job.objects.get(pk=job.pk).status == JobStatus.DONE
