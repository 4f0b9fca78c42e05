"""The proxy does what networks do, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.proxy import Proxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(65536):
                        connection.sendall(data)
                except OSError:
                    pass

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[:2]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(echo) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    answer = b""
    while len(answer) < len(data):
        piece = client.recv(65536)
        assert piece, "the connection was closed"
        answer += piece
    return answer


def hears_nothing(client: socket.socket, seconds: float = 0.3) -> bool:
    client.settimeout(seconds)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(30)
    return False


def test_data_passes_in_both_directions(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"hello") == b"hello"
        large = bytes(range(256)) * 4096
        assert ask(client, large) == large
    assert proxy.accepted == 1


def test_a_close_is_passed_on(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"hello")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_cut_connections_get_a_reset_and_new_ones_work(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"hello")
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        assert ask(client, b"again") == b"again"


def test_frozen_connections_hear_nothing_until_they_are_thawed(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"hello")
        with proxy.frozen():
            client.sendall(b"waiting")
            assert hears_nothing(client)
            with connect(proxy) as second:  # the kernel answers; the proxy does not
                second.sendall(b"me too")
                assert hears_nothing(second)
        assert client.recv(100) == b"waiting"


def test_new_connections_pass_while_only_the_old_ones_are_frozen(proxy: Proxy) -> None:
    with connect(proxy) as client, connect(proxy) as second:
        ask(client, b"hello")
        ask(second, b"hello")
        proxy.freeze(new=False)
        client.sendall(b"waiting")
        assert hears_nothing(client)
        with connect(proxy) as third:
            assert ask(third, b"new") == b"new"
        proxy.thaw()
        assert client.recv(100) == b"waiting"


def test_a_frozen_connection_can_be_cut(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"hello")
        proxy.freeze()
        client.sendall(b"waiting")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        proxy.thaw()


def test_latency_delays_each_direction(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.latency = 0.1
        began = time.monotonic()
        ask(client, b"hello")
        assert time.monotonic() - began >= 0.2


def test_nobody_there_is_a_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        target = closed.getsockname()[:2]
    # The reset may come before connect() has returned.
    with Proxy(target) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)
