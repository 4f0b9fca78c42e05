"""What the demo prints: events that stay, and below them a live line, rewritten in place where there is a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time

from testproject.demo.figures import COLUMNS, Line

#: Seconds between two live lines where they cannot be rewritten.
PLAIN_EVERY = 5.0


class Screen:
    def __init__(self) -> None:
        self.live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.colour = self.live and "NO_COLOR" not in os.environ
        self._began = time.monotonic()
        self._status = ""
        self._last_plain = 0.0

    def say(self, text: str = "") -> None:
        self._write(self._erase() + text + "\n")
        self._redraw()

    def event(self, text: str) -> None:
        """Something happened, at a time that is worth knowing."""
        self.say(f"{self._bold(self.clock())}  {text}")

    def status(self, text: str) -> None:
        """The live line."""
        text = f"{self.clock()}  {text}"
        if self.live:
            self._status = text
            self._redraw()
        elif time.monotonic() - self._last_plain >= PLAIN_EVERY:
            self._last_plain = time.monotonic()
            self._write(text + "\n")

    def end_of_status(self) -> None:
        self._write(self._erase())
        self._status = ""

    def start_clock(self) -> None:
        self._began = time.monotonic()

    def clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes:02}:{seconds:02}"

    def table(self, lines: dict[str, Line]) -> None:
        """One line a job name, and their sum."""
        total = Line()
        for line in lines.values():
            total.add(line)
        rows = [["job", *COLUMNS]]
        for name, line in [*lines.items(), ("all jobs", total)]:
            rows.append([name, *(str(getattr(line, column) or "·") for column in COLUMNS)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for number, (name, *cells) in enumerate(rows):
            text = " ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])
            self.say(self._bold(text) if number in (0, len(rows) - 1) else text)

    def _erase(self) -> str:
        return "\r\x1b[K" if self._status else ""

    def _redraw(self) -> None:
        if self._status:
            self._write("\r\x1b[K" + self._status[: shutil.get_terminal_size().columns - 1])

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:  # The terminal is gone, or the pipe's reader; the clean-up goes on.
            pass
