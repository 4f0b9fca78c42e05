"""The demo from its first to its last line, on a database that is there."""

from __future__ import annotations

import os
import time
from collections import deque

from django.core.management import call_command
from django.db import OperationalError, connection

from django_reliable_jobs import conf, control
from django_reliable_jobs.models import Job, JobStatus
from django_reliable_jobs.values.states import CLAIMABLE
from testproject.demo import figures, site, traffic
from testproject.demo.chaos import Chaos
from testproject.demo.fleet import PODS, SLOTS, Fleet
from testproject.demo.interrupt import Interrupt
from testproject.demo.log import Log
from testproject.demo.programs import DemoError, stop_all
from testproject.demo.screen import Screen

#: Seconds that the programs get to start, and the last jobs to finish.
START_TIMEOUT, DRAIN_TIMEOUT = 60.0, 60.0
#: Seconds of that after which jobs that wait for their next attempt are run at once.
PATIENCE = 4.0
#: Seconds between two looks at everything, and between two live lines.
TICK, STATUS_EVERY = 0.2, 1.0
#: Seconds over which jobs/s is the mean.
WINDOW = 3.0
#: What the live line counts.
SHOWN = (JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.DONE, JobStatus.FAILED, JobStatus.DEAD)


class Show:
    """`seconds`: for how long there is traffic; None is until a signal comes."""

    def __init__(self, screen: Screen, interrupt: Interrupt, log: Log, seconds: float | None) -> None:
        self.screen = screen
        self.interrupt = interrupt
        self.log = log
        self.seconds = seconds
        self.fleet = Fleet(log.path)
        self.site = site.Site(os.environ.get("DEMO_ADDRESS", ""), log.path)
        self.traffic = traffic.Traffic()
        self._speed: deque[tuple[float, int]] = deque()
        self._status_at = 0.0

    def run(self) -> int:
        """The exit status: 0 unless something is wrong."""
        try:
            self._prepare()
            self._wait_for_programs()
            if self.interrupt:
                return 0
            self.first = figures.last_job()
            self.chaos = Chaos(self.fleet, self.first)
            self.screen.start_clock()
            self.traffic.start()
            self._watch()
            self.traffic.stop()
            self._drain()
        finally:
            self.traffic.stop()
            self._stop_programs()
        return self._report()

    # --- begin ------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        connection.ensure_connection()
        call_command("migrate", verbosity=0)
        self.fleet.start()
        self.site.start()
        self.password = site.make_user()
        traffic.seed()

    def _wait_for_programs(self) -> None:
        give_up = time.monotonic() + START_TIMEOUT
        while not self.interrupt and not (len(self.fleet.at_work()) == PODS and self.site.is_up()):
            for program in (*self.fleet.pods, self.site):
                if not program.running:
                    raise DemoError(f"{program.name} did not start.")
            if time.monotonic() > give_up:
                raise DemoError("The pods and the site did not start in time.")
            self.interrupt.wait(0.1)
        if self.interrupt:
            return
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            version = cursor.fetchone()[0].split()[0]
        say = self.screen.say
        say(f"  admin     {self.site.url}")
        say(f"  login     {site.USER} / {self.password}")
        say(f"  fleet     {PODS} pods of {SLOTS} slots; leases of {conf.current().lease:g} s; PostgreSQL {version}")
        say(f"  log       {self.log.path}")
        say("  Ctrl-C stops everything." if self.seconds is None else f"  Ends by itself, {self.seconds:g} s from now.")
        say()

    # --- go on ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        end = None if self.seconds is None else time.monotonic() + self.seconds
        while not self.interrupt and (end is None or time.monotonic() < end):
            # The last kill is to be seen to its end.
            near = end is not None and end - time.monotonic() < conf.current().lease + 1
            self._tick(only_import=near)
            if self.traffic.error is not None:
                raise DemoError(f"The traffic has stopped: {self.traffic.error!r}")

    def _drain(self) -> None:
        """Let the fleet finish what is under way; not after a signal."""
        if self.interrupt:
            return
        self.screen.event("no more traffic; the fleet finishes what is under way")
        began = time.monotonic()
        while not self.interrupt and self._work_left():
            waited = time.monotonic() - began
            if waited > DRAIN_TIMEOUT:
                self.screen.event("that takes too long; the table says what is left")
                return
            if waited > PATIENCE:
                control.run_now(Job.objects.filter(pk__gt=self.first, status__in=CLAIMABLE))
            self._tick(only_import=True)

    def _work_left(self) -> bool:
        try:
            return figures.unfinished(figures.by_status(self.first)) > 0
        except OperationalError:
            connection.close()
            return True

    def _tick(self, *, only_import: bool) -> None:
        self.interrupt.wait(TICK)
        for text in [*self.log.handlers_said(), *self.fleet.tend()]:
            self.screen.event(text)
        try:
            for text in self.chaos.tick(only_import=only_import):
                self.screen.event(text)
            if time.monotonic() >= self._status_at:
                self._status_at = time.monotonic() + STATUS_EVERY
                self._show_status()
        except OperationalError as error:  # Somebody restarts it under us: the fleet goes on, and so do we.
            self.screen.event(f"no answer from the database: {str(error).strip().splitlines()[0]}")
            connection.close()
            self.interrupt.wait(STATUS_EVERY)

    def _show_status(self) -> None:
        counts = figures.by_status(self.first)
        now, done = time.monotonic(), figures.finished(counts)
        self._speed.append((now, done))
        while now - self._speed[0][0] > WINDOW:
            self._speed.popleft()
        since, before = self._speed[0]
        rate = (done - before) / (now - since) if now > since else 0.0
        pods = sum(pod.running for pod in self.fleet.pods)
        numbers = "  ".join(f"{status.lower()} {counts[status]}" for status in SHOWN)
        self.screen.status(f"{numbers}  {rate:.0f} jobs/s  pods {pods}/{PODS}")

    # --- end --------------------------------------------------------------------------------------

    def _stop_programs(self) -> None:
        self.screen.end_of_status()
        if self.interrupt:
            self.screen.say("Stopping; a second Ctrl-C does not wait for running jobs.")
        signals = self.interrupt.count
        programs = [*self.fleet.pods, self.site]
        for name in stop_all(programs, conf.current().grace + 15, lambda: self.interrupt.count > max(1, signals)):
            self.screen.say(f"{name} did not stop in time and was killed.")

    def _report(self) -> int:
        lines = figures.table(self.first)
        facts = figures.books()
        say = self.screen.say
        say()
        self.screen.table(lines)
        say()
        say("failed: attempts that another one followed; left: jobs that are not finished;")
        say("recovered: jobs that are DONE although their worker was killed.")
        for right, fact in facts:
            say(f"{'ok   ' if right else 'WRONG'} {fact}")
        return 0 if all(right for right, _ in facts) else 1
