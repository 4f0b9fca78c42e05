"""The tasks of `django_tasks_db`; imported once Django is set up there."""

from __future__ import annotations

from django.tasks import task

from benchmarks import marks


@task
def noop(number: int) -> None:
    marks.mark(number)


@task
def nap(number: int) -> None:
    marks.nap(number)
