"""Whether a connection is inside the transaction that Django's `TestCase` rolls back at the end of a test."""

from __future__ import annotations

from typing import Any


def in_a_tests(connection: Any) -> bool:
    """What this test has written is seen by this connection alone."""
    blocks = connection.atomic_blocks
    return bool(blocks) and bool(getattr(blocks[0], "_from_testcase", False))


def only_a_tests(connection: Any) -> bool:
    """No block is open but those of `TestCase`: in production nothing would be open, and a commit would have been."""
    blocks = connection.atomic_blocks
    return bool(blocks) and all(getattr(block, "_from_testcase", False) for block in blocks)
