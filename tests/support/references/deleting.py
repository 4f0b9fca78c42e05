"""python -m tests.support.references.deleting: jobs that a project's tables refer to come to the end of their retention.

For a process of its own, whose settings have such tables. Says what went wrong, or "as it should be".
"""

from __future__ import annotations

import os
import threading

import django


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.support.references.settings"
    django.setup()
    from django.core.management import call_command
    from django.db import IntegrityError, connection, transaction

    from django_reliable_jobs import control
    from django_reliable_jobs.models import CronRun, Job, JobAttempt, JobStatus
    from django_reliable_jobs.store.prune import prune
    from tests.support.factories import JobAttemptFactory, JobFactory, ago
    from tests.support.references.models import Contract, Entry, Invoice, Note, Receipt, Report, Seal, Trace

    call_command("migrate", verbosity=0)

    def everything() -> dict[str, Job]:
        """One job for each way to refer to it."""
        Job.objects.all()._raw_delete("default")
        names = ("receipt", "contract", "entry", "sealed", "invoice", "note", "report", "trace", "nothing")
        jobs = {name: JobFactory(done=True, finished_at=ago(100 - n)) for n, name in enumerate(names)}
        Receipt.objects.create(job=jobs["receipt"])
        Contract.objects.create(job=jobs["contract"])
        Entry.objects.create(job=jobs["entry"])
        Seal.objects.create(note=Note.objects.create(job=jobs["sealed"]))
        Invoice.objects.create(job=jobs["invoice"])
        Note.objects.create(job=jobs["note"])
        Report.objects.create().jobs.add(jobs["report"])
        Trace.objects.create(job=jobs["trace"])
        JobAttemptFactory(job=jobs["invoice"])
        CronRun.objects.create(
            name="daily", scheduled_for=ago(200), fired_at=ago(200), outcome="enqueued", job_id=jobs["note"].pk
        )
        return jobs

    def clean() -> None:
        for model in (Seal, Note, Receipt, Contract, Entry, Invoice, Report, Trace, CronRun, JobAttempt):
            model.objects.all().delete()

    def left(jobs: dict[str, Job]) -> set[str]:
        there = set(Job.objects.values_list("pk", flat=True))
        return {name for name, job in jobs.items() if job.pk in there}

    kept = {"receipt", "contract", "entry", "sealed"}

    def check_what_happened_to_the_rest() -> None:
        assert Invoice.objects.get().job_id is None
        assert Note.objects.count() == 1, "the sealed one"
        assert Report.objects.get().jobs.count() == 0
        assert Trace.objects.count() == 1
        assert CronRun.objects.get().job_status == "DONE"

    # Pruned in batches, what is kept being the oldest.
    jobs = everything()
    counts = [prune("default", JobStatus.DONE, 5, 3) for _ in range(2)]
    assert counts == [3, 2], "what is kept does not stand in for what can go"
    assert left(jobs) == kept, (counts, left(jobs))
    assert sum(counts) == 5, counts
    check_what_happened_to_the_rest()

    # By hand.
    clean()
    jobs = everything()
    running = JobFactory(running=True)
    report = control.delete([*(job.pk for job in jobs.values()), running.pk])
    assert set(report.skipped) == {jobs[name].pk for name in kept} | {running.pk}, report
    assert left(jobs) == kept
    check_what_happened_to_the_rest()

    # In the caller's transaction: nothing is left set, and what was done there is undone with it.
    clean()
    jobs = everything()
    with transaction.atomic():
        assert len(control.delete([job.pk for job in jobs.values()]).changed) == 5
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            assert cursor.fetchone() == ("0",)
        transaction.set_rollback(True)
    assert left(jobs) == set(jobs)
    assert Invoice.objects.get().job_id == jobs["invoice"].pk

    # Many that are kept behind a cascade, and one that can go behind them all.
    clean()
    Job.objects.all()._raw_delete("default")
    for age in range(200, 150, -1):
        Seal.objects.create(note=Note.objects.create(job=JobFactory(done=True, finished_at=ago(age))))
    JobFactory(done=True, finished_at=ago(100))
    assert prune("default", JobStatus.DONE, 5, 20) == 1
    assert Job.objects.count() == 50

    # Somebody refers to a job that is pruned before the commit, which is when Django's keys are checked: this one fails.
    clean()
    Job.objects.all()._raw_delete("default")
    job = JobFactory(done=True, finished_at=ago(100))
    counts = []

    def other() -> None:
        counts.append(prune("default", JobStatus.DONE, 5, 3))
        connection.close()

    try:
        with transaction.atomic():
            Receipt.objects.create(job=job)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
    except IntegrityError:
        assert counts == [1]
    else:
        raise AssertionError(counts)
    print("as it should be")


if __name__ == "__main__":
    main()
