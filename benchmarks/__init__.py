"""What the figures in the README and in `docs/benchmarks.md` come from.

    python -m benchmarks           this package beside a loop of raw SQL (`make bench`)
    python -m benchmarks.peers     this package beside other queues from PyPI (`make bench-peers`)

`docs/benchmarks.md` says what is measured and how. In short: a `Contender` is one queue under test; all that it does runs
in processes of its own (`child.py`), so that this process, which only watches, can run it under another interpreter.
"""
