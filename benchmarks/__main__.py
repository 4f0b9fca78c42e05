"""`make bench`: this package beside a loop of raw SQL, in one run on one PostgreSQL with durable defaults."""

from __future__ import annotations

import sys

from benchmarks import cli
from benchmarks.plan import OURS, RAW


def main() -> int:
    parser = cli.arguments(str(__doc__))
    options = parser.parse_args()
    return cli.run(options, cli.wanted(options, parser), [*OURS, *RAW], lambda contender: sys.executable, "bench")


if __name__ == "__main__":
    sys.exit(main())
