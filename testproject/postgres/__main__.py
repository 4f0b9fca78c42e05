"""python -m testproject.postgres -- some command"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from testproject.postgres import DATABASE, EmbeddedPostgres


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m testproject.postgres",
        description="Run a command with DATABASE_URL set to a new database on a server that lives as long as it.",
    )
    parser.add_argument("--fast", action="store_true", help="do not wait for the disk")
    parser.add_argument("command", nargs="+", metavar="-- command")
    options = parser.parse_args(arguments)
    with EmbeddedPostgres(fast=options.fast) as server:
        url = server.create_database(DATABASE)
        return subprocess.run(options.command, env=os.environ | {"DATABASE_URL": url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
