"""`manage.py jobs`: for operators. So far schedules: list, run, pause, resume, backfill."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseTrouble
from django.utils import timezone

from django_reliable_jobs import conf
from django_reliable_jobs.control import schedules as control_schedules
from django_reliable_jobs.errors import ReliableJobsError
from django_reliable_jobs.models import CronSchedule


class Command(BaseCommand):
    help = "Looks at schedules, and does what people do to them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        objects = parser.add_subparsers(dest="object", required=True)
        schedules = objects.add_parser("schedules", help="schedules: list, run, pause, resume, backfill")
        verbs = schedules.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="all of them, each with its next fire time")
        for verb, text in (
            ("run", "enqueue its job now, paused or not"),
            ("pause", "no fire until it is resumed"),
            ("resume", "fire again, from the next time on"),
            ("backfill", "make up for past fire times that have no job"),
        ):
            sub = verbs.add_parser(verb, help=text)
            sub.add_argument("name")
            if verb == "backfill":
                sub.add_argument("start", help="not this moment itself: 2026-07-01T00:00+02:00")
                sub.add_argument("end", help="this moment too; without an offset both are in TIME_ZONE")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except (ReliableJobsError, ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
        except DatabaseTrouble as error:
            raise CommandError(_in_words(error)) from error

    def _list(self, options: dict[str, Any]) -> None:
        shown = ("name", "expression", "timezone", "job_name", "broken", "paused", "next_fire_at")
        schedules = list(CronSchedule.objects.using(conf.current().database).order_by("name").only(*shown))
        if not schedules:
            self.stdout.write(
                "There is no schedule: no worker whose code has one has run yet, and nobody has made one."
            )
        for one in schedules:
            state = "BROKEN: " + one.broken if one.broken else "paused" if one.paused else ""
            upcoming = "never" if one.next_fire_at is None else one.next_fire_at.isoformat(" ", "seconds")
            self.stdout.write(
                f"{one.name}  {one.expression} ({one.timezone})  {one.job_name}  {state or f'next {upcoming}'}"
            )

    def _run(self, options: dict[str, Any]) -> None:
        self.stdout.write(f"job {control_schedules.run_schedule(options['name'])} is enqueued")

    def _pause(self, options: dict[str, Any]) -> None:
        changed = control_schedules.pause_schedule(options["name"])
        self.stdout.write(f"{options['name']} is paused" if changed else f"{options['name']} was paused before")

    def _resume(self, options: dict[str, Any]) -> None:
        changed = control_schedules.resume_schedule(options["name"])
        self.stdout.write(f"{options['name']} fires again" if changed else f"{options['name']} was not paused")

    def _backfill(self, options: dict[str, Any]) -> None:
        made = control_schedules.backfill(options["name"], _moment(options["start"]), _moment(options["end"]))
        self.stdout.write(f"{len(made)} jobs are enqueued")


def _in_words(error: DatabaseTrouble) -> str:
    alias = conf.current().database
    if getattr(error.__cause__, "sqlstate", None) == "42P01" or "no such table" in str(error):
        return f"The tables of django_reliable_jobs are not in the database {alias!r}: run manage.py migrate first."
    return f"The database {alias!r} gives trouble: {' '.join(str(error).split())}"


def _moment(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no moment; write it like 2026-07-01T00:00+02:00.") from None
    return value if timezone.is_aware(value) else timezone.make_aware(value, timezone.get_default_timezone())
