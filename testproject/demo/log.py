"""The log of the pods and the site, and what of it belongs on the screen."""

from __future__ import annotations

from pathlib import Path

#: Lines of this logger are what the shop's handlers say with `ctx.logger`.
HANDLERS = " django_reliable_jobs.job: "


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = path.stat().st_size
        self._rest = b""

    def handlers_said(self) -> list[str]:
        """What handlers have said since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        texts = [line.decode(errors="replace") for line in lines]
        return [text.partition(HANDLERS)[2] for text in texts if HANDLERS in text]

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.path.read_text(errors="replace").splitlines()[-lines:])
