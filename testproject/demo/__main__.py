"""python -m testproject.demo"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from testproject.demo.interrupt import Interrupt
from testproject.postgres import DATABASE, EmbeddedPostgres, PostgresError

#: Short leases, so that a killed worker's jobs are back while somebody watches.
RELIABLE_JOBS = {"LEASE": 3, "GRACE": 5}


def main() -> int:
    interrupt = Interrupt()
    try:
        seconds = duration(os.environ.get("DEMO_SECONDS", ""))
    except ValueError:
        print("DEMO_SECONDS is a number of seconds, such as 20.", file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    asked = json.loads(os.environ.get("RELIABLE_JOBS_JSON") or "{}")
    os.environ["RELIABLE_JOBS_JSON"] = json.dumps(RELIABLE_JOBS | asked)
    os.environ["LOG_LEVEL"] = "WARNING"  # Of this process; the pods say more, into the log.
    print("Starting ...", flush=True)
    with ExitStack() as stack:
        try:
            if not os.environ.get("DATABASE_URL"):
                server = stack.enter_context(EmbeddedPostgres(fast=True))
                os.environ["DATABASE_URL"] = server.create_database(DATABASE)
        except PostgresError as error:
            print(error, file=sys.stderr)
            return 1
        if interrupt:
            return 0
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reliable-jobs-demo-")))
        return show(interrupt, Path(os.environ.get("DEMO_LOG") or folder / "workers.log"), seconds)


def show(interrupt: Interrupt, path: Path, seconds: float | None) -> int:
    import django

    django.setup()
    from django.core.management import CommandError
    from django.db import Error as DatabaseTrouble

    from testproject.demo.log import Log
    from testproject.demo.programs import DemoError
    from testproject.demo.screen import Screen
    from testproject.demo.show import Show

    log = Log(path.resolve())
    try:
        return Show(Screen(), interrupt, log, seconds).run()
    except (DemoError, DatabaseTrouble, CommandError) as error:
        print(f"\n{str(error).strip()}", file=sys.stderr)
        if tail := log.tail():
            print(f"\nThe end of the log:\n\n{tail}", file=sys.stderr)
        return 1


def duration(text: str) -> float | None:
    if not text:
        return None
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
