"""The admin site, and somebody who may log in."""

from __future__ import annotations

import secrets
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

from django.contrib.auth.models import User

from testproject.demo.programs import DemoError, Program

USER = "demo"
PORT = 8000


class Site(Program):
    """Serves the admin at `address` (host:port; without it on port 8000 or, where that is taken, on a free one).

    The demo opens the socket and hands it over, so nobody else can take the port in between.
    """

    def __init__(self, address: str, log: Path) -> None:
        self.socket = listen(address)
        self.host, self.port = self.socket.getsockname()
        serve = [sys.executable, "-m", "testproject.demo.serve", str(self.socket.fileno())]
        super().__init__("the admin site", serve, log, fds=[self.socket.fileno()])

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host
        return f"http://{host}:{self.port}/admin/"

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def listen(address: str) -> socket.socket:
    """Raises `DemoError` where the address that was asked for is none, or is taken."""
    host, _, port = address.rpartition(":")
    try:
        for candidate in (int(port),) if address else (PORT, 0):
            try:
                return socket.create_server((host or "127.0.0.1", candidate))
            except OSError as error:
                trouble = str(error)
    except (ValueError, OverflowError):
        trouble = "it is written as host:port, such as 127.0.0.1:8000"
    raise DemoError(f"DEMO_ADDRESS {address}: {trouble}.")


def make_user() -> str:
    """The password of the demo's superuser, a new one for each run."""
    password = secrets.token_urlsafe(9)
    user, _ = User.objects.get_or_create(username=USER)
    user.is_staff = user.is_superuser = True
    user.set_password(password)
    user.save()
    return password
