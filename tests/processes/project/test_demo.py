"""`python -m testproject.demo` as its user sees it, and what is left behind when it has ended: nothing."""

from __future__ import annotations

import http.cookiejar
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from django.utils.timezone import now

from django_reliable_jobs.models import Job, JobAttempt
from testproject.demo import figures
from testproject.postgres import PROJECT_ROOT
from testproject.shop import jobs, orders
from testproject.shop.catalogue import read_records
from testproject.shop.models import Customer, Import, ImportedRecord, LedgerEntry, Product, StockMove

pytestmark = pytest.mark.slow

LIVE_LINE = re.compile(r"\d\d:\d\d  queued \d+  running \d+  done \d+  failed \d+  dead \d+  \d+ jobs/s  pods \d/3")
COLUMNS = ["enqueued", "done", "failed", "dead", "cancelled", "left", "recovered"]


class Demo:
    """A run of the demo on a server of its own. What it prints is in `text`, what it starts in `family`."""

    def __init__(self, *, terminal: bool = False, **env: str) -> None:
        self.mark = uuid.uuid4().hex
        self.text = ""
        self.family: set[psutil.Process] = set()
        # The tests' own settings and database are nothing to it.
        inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        environment = inherited | {"DJANGO_SETTINGS_MODULE": "testproject.settings", "DEMO_MARK": self.mark, **env}
        command = [sys.executable, "-m", "testproject.demo"]
        self.master, slave = pty.openpty() if terminal else os.pipe()
        if terminal:
            # The leader of a new session that opens a terminal has it as its own: Ctrl-C in it reaches the demo.
            command = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(slave), *command]
        self.process = subprocess.Popen(
            command,
            cwd=PROJECT_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self.master, 65536):
                self.text += data.decode(errors="replace")
        except OSError:  # A terminal whose last user has gone.
            pass

    def wait_for(self, condition: Callable[[], object], seconds: float = 120) -> None:
        give_up = time.monotonic() + seconds
        while not condition():
            self.look_around()
            assert time.monotonic() < give_up, f"It did not come to that.\n{self.text}"
            time.sleep(0.05)

    def look_around(self) -> None:
        try:
            self.family.update(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            pass

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: "pods 3/3" in self.text or self.ended())
        assert not self.ended(), self.text

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> int:
        """The exit status, once it has ended by itself and all that it printed is read."""
        self.wait_for(self.ended)
        self.reader.join(30)
        return self.process.wait()

    def said(self, name: str) -> str:
        """What stands behind a name in the lines that it begins with."""
        found = re.search(rf"^  {name} +(\S.*?)\s*$", self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]

    def left_behind(self) -> list[str]:
        """Processes that it started: those seen below it, and those that bear its mark."""
        return [f"{one.pid} {one.cmdline()}" for one in {*self.family, *self.marked()} if is_alive(one)]

    def marked(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                if process.environ().get("DEMO_MARK") == self.mark:
                    yield process
            except psutil.Error:
                continue

    def table(self) -> dict[str, dict[str, int]]:
        """The final table, by job name."""
        plain = re.sub(r"\x1b\[\d*m|\r", "", self.text)
        rows = re.findall(r"^(shop\.\w+|all jobs)((?: +(?:\d+|·)){7})$", plain, re.MULTILINE)
        assert rows, self.text
        return {
            name: dict(zip(COLUMNS, (0 if cell == "·" else int(cell) for cell in cells.split()), strict=True))
            for name, cells in rows
        }

    def clean_up(self) -> None:
        for process in {*self.family, *self.marked()}:
            if is_alive(process):
                process.kill()
        self.process.wait()
        os.close(self.master)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def demo(request: pytest.FixtureRequest) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(**options: object) -> Demo:
        started.append(Demo(**options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.clean_up()


def test_a_demo_for_some_seconds_recovers_from_a_kill_drains_and_tells_what_ran(demo: Callable[..., Demo]) -> None:
    run = demo(DEMO_SECONDS="8", SHOP_TROUBLE="0.1")
    run.wait_until_ready()
    assert {"postgres", "jobworker", "testproject.demo.serve"} <= {word_of(one) for one in run.family}
    assert run.end() == 0, run.text

    assert LIVE_LINE.search(run.text), run.text
    assert re.search(r"pod \d is killed with SIGKILL; it was running [1-9]\d* jobs?", run.text), run.text
    assert re.search(r"shop\.import_records #\d+/2: resumes at [1-9]0 of 100", run.text), run.text
    table = run.table()
    for name, line in table.items():
        assert line["enqueued"] == line["done"] + line["dead"] + line["cancelled"] + line["left"], name
    every, imports = table["all jobs"], table["shop.import_records"]
    assert (imports["done"], imports["recovered"]) == (1, 1)
    assert every["recovered"] > 0
    assert every["left"] == 0, "the fleet had time to finish"
    assert every["done"] > 20
    assert every["failed"] > 0, "the shop's services fail now and then"
    assert "WRONG" not in run.text, run.text
    assert run.left_behind() == []
    assert not Path(run.said("log")).parent.exists()


def test_the_admin_answers_and_ctrl_c_in_the_terminal_ends_all_in_order(demo: Callable[..., Demo]) -> None:
    run = demo(terminal=True, TERM="xterm", DEMO_ADDRESS="127.0.0.1:0")
    run.wait_until_ready()
    assert "\r\x1b[K" in run.text, "the live line is rewritten in place"
    assert_admin_works(run.said("admin"), *run.said("login").split(" / "))

    os.write(run.master, b"\x03")
    assert run.end() == 0, run.text
    assert run.table()["all jobs"]["done"] > 0
    assert "in time" not in run.text, "nothing had to be killed"
    assert run.left_behind() == []


def test_sigterm_ends_all_in_order_even_before_the_demo_is_ready(demo: Callable[..., Demo]) -> None:
    run = demo()
    run.wait_for(lambda: {"jobworker"} <= {word_of(one) for one in run.family})
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0, run.text
    assert run.left_behind() == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_a_demo_that_is_killed_leaves_nothing_behind_either(demo: Callable[..., Demo]) -> None:
    run = demo()
    run.wait_until_ready()
    run.process.kill()
    run.end()
    run.wait_for(lambda: not run.left_behind())
    shutil.rmtree(Path(run.said("log")).parent)  # That much it could not do itself.


@pytest.mark.django_db
def test_the_final_facts_are_wrong_when_something_was_done_twice() -> None:
    customer = Customer.objects.create(name="Ada", email="ada@example.com")
    batch = Import.objects.create(name="catalogue", records=read_records()[:5])
    jobs.import_records.call(batch.pk)
    order = orders.place_order(customer, Product.objects.get(sku="BK-0001"), 2)
    jobs.reserve_stock.call(order.pk)
    jobs.book_invoice.call(order.invoice.pk)
    assert [right for right, _ in figures.books()] == [True, True, True], figures.books()

    for number, model in enumerate((LedgerEntry, StockMove, ImportedRecord)):
        row = model._default_manager.order_by("pk").first()
        row.pk = None
        row.save()
        assert [right for right, _ in figures.books()] == [number < other for other in range(3)], model


@pytest.mark.django_db
def test_the_final_table_is_counted_from_the_rows() -> None:
    first = jobs.restock.enqueue(1).pk
    ends = [("DONE", 0), ("DONE", 1), ("DEAD", 1), ("CANCELLED", 0), ("FAILED", 0), ("QUEUED", 1)]
    for number, (status, losses) in enumerate(ends):
        job = jobs.send_invoice.enqueue(number)
        Job.objects.filter(pk=job.pk).update(status=status, losses=losses)
        became = "FAILED" if status == "FAILED" else "QUEUED"
        JobAttempt.objects.create(job=job, fencing_token=1, attempt=1, status=became, finished_at=now())
    line = figures.Line(enqueued=6, done=2, failed=1, dead=1, cancelled=1, left=2, recovered=1)
    assert figures.table(first) == {"shop.send_invoice": line}
    assert figures.unfinished(figures.by_status(first)) == 2
    assert figures.finished(figures.by_status(first)) == 4


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_wrong_demo_seconds_is_refused_with_its_name(demo: Callable[..., Demo], text: str) -> None:
    run = demo(DEMO_SECONDS=text)
    assert run.end() == 2
    assert "DEMO_SECONDS" in run.text
    assert "Traceback" not in run.text


def word_of(process: psutil.Process) -> str:
    """Which of the demo's programs it is."""
    try:
        command = process.cmdline()
    except psutil.Error:
        return ""
    known = ("jobworker", "testproject.demo.serve")
    return next((name for name in known if name in command), Path(command[0]).name if command else "")


def assert_admin_works(url: str, user: str, password: str) -> None:
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    login_page = opener.open(url).read().decode()
    form = {"username": user, "password": password, "next": urllib.parse.urlsplit(url).path}
    form["csrfmiddlewaretoken"] = next(cookie.value or "" for cookie in jar if cookie.name == "csrftoken")
    index = opener.open(urllib.parse.urljoin(url, "login/"), urllib.parse.urlencode(form).encode()).read().decode()
    assert "Subscriptions" in index
    style = re.search(r'href="(/static/admin/css/base[^"]*\.css)"', login_page)
    assert style is not None
    assert opener.open(urllib.parse.urljoin(url, style[1])).status == 200
