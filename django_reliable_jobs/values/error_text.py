"""Error text that can always be stored: bounded, without NUL or lone surrogates, whatever the exception does.

Failing to record a failure would leave its job RUNNING, so nothing here raises.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from typing import Any

#: What a text column refuses (NUL), and what UTF-8 cannot express (lone surrogates).
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_REPLACEMENT = "\ufffd"

#: Frames kept at each end of a traceback; a recursion of thousands is told in its first and last ones.
FRAMES = 50
CLASS_NAME_LIMIT = 300


def safe_text(value: object, limit: int) -> str:
    """Return `str(value)` as at most `limit` characters that any database takes; a cut is marked at the end.

    A `__str__` that raises is replaced by a sentence that says so.
    """
    return _cut(_text(value), limit)


def describe_exception(
    exc: BaseException, *, message_limit: int = 10_000, traceback_limit: int = 50_000
) -> tuple[str, str, str]:
    """Return the class name, the message and the traceback (with causes, contexts and groups) of `exc`, safe to store.

    Limits are in characters. A traceback that is too long keeps its start and its end; local variables are never in it.
    """
    return (
        _cut(_class_name(type(exc)), CLASS_NAME_LIMIT),
        safe_text(exc, message_limit),
        _head_and_tail(_traceback_lines(exc, message_limit), traceback_limit),
    )


def _text(value: object) -> str:
    try:
        return value if type(value) is str else str(value)
    except BaseException as error:  # noqa: BLE001 - even SystemExit: it is a broken text, no wish to stop
        return f"<{_class_name(type(value))} without text: its __str__ raised {_class_name(type(error))}>"


def _class_name(kind: type) -> str:
    try:
        module, name = str(kind.__module__), str(kind.__qualname__)
    except BaseException:  # noqa: BLE001 - a metaclass can break even this
        return "object"
    return name if module == "builtins" else f"{module}.{name}"


def _cut(text: str, limit: int) -> str:
    # str's own methods: `text` may be an instance of a subclass. Cut first, so that 50 MB cost nothing.
    length = str.__len__(text)
    kept = str.__getitem__(text, slice(0, max(limit, 0)))
    if length > limit:
        marker = f"... [cut, {length:,} characters]"
        if len(marker) < limit:
            kept = kept[: limit - len(marker)] + marker
    return _UNSTORABLE.sub(_REPLACEMENT, kept)


def _head_and_tail(chunks: Iterable[str], limit: int) -> str:
    text = _UNSTORABLE.sub(_REPLACEMENT, "".join(chunks))
    if len(text) <= limit:
        return text
    marker = f"\n... [cut, {len(text):,} characters] ...\n"
    room = limit - len(marker)
    if room < 2:
        return text[-max(limit, 0) :] if limit > 0 else ""
    head = room // 2
    return text[:head] + marker + text[head - room :]


def _traceback_lines(exc: BaseException, line_limit: int) -> list[str]:
    try:
        report = traceback.TracebackException(type(exc), exc, exc.__traceback__, lookup_lines=False, compact=True)
        _shorten(report)
        return [_cut_line(line, line_limit) for line in report.format()]
    except BaseException as error:  # noqa: BLE001 - it runs code of the exception, its notes and its group
        return [f"<traceback not available: formatting it raised {_class_name(type(error))}>\n"]


def _cut_line(line: str, limit: int) -> str:
    return line if len(line) <= limit else _cut(line, limit) + "\n"


class _Shortened(traceback.StackSummary):
    """The first and the last frames of a stack, with a line that counts the others."""

    left_out = 0

    def format(self, **options: Any) -> list[str]:
        head, tail = traceback.StackSummary(self[:FRAMES]), traceback.StackSummary(self[FRAMES:])
        return [*head.format(**options), f"  ... {self.left_out:,} frames left out ...\n", *tail.format(**options)]


def _shorten(report: traceback.TracebackException) -> None:
    """Replace the long stacks of an exception and of those that it is chained to or made of."""
    waiting, seen = [report], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if len(current.stack) > 2 * FRAMES:
            stack = _Shortened([*current.stack[:FRAMES], *current.stack[-FRAMES:]])
            stack.left_out = len(current.stack) - 2 * FRAMES
            current.stack = stack
        linked = (current.__cause__, current.__context__, *(current.exceptions or ()))
        waiting.extend(link for link in linked if link is not None)
