"""A TCP proxy that misbehaves as networks do: it cuts connections, freezes them, and is slow. Usable by any test.

with Proxy(("127.0.0.1", postgres.port)) as proxy:
    url = database_url(name, host="127.0.0.1", port=proxy.port, password=postgres.password)
    proxy.cut()                # every connection gets a reset
    with proxy.frozen(): ...   # nothing passes and nobody is told; new connections get no answer either
    proxy.freeze(new=False)    # only the connections of now: as when a router forgets them
    proxy.latency = 0.02       # seconds, each way
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

CHUNK = 65536


class _Pair:
    """Two ends of one connection through the proxy."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self.ends = ends
        #: Freezing is not closing: each connection has a gate, and a frozen one stays until it is thawed or cut.
        self.gate = asyncio.Event()

    def reset(self) -> None:
        for end in self.ends:
            sock: socket.socket = end.get_extra_info("socket")
            with suppress(OSError):  # with a linger time of zero a close is a RST
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()


class Proxy:
    """Listens on 127.0.0.1. Its verbs may be called from any thread and take effect before they return."""

    port: int

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        #: Seconds that each piece of data waits, in each direction.
        self.latency = 0.0
        #: Connections taken so far.
        self.accepted = 0
        self._frozen = False
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- what a network does ----------------------------------------------------------------------

    def cut(self) -> int:
        """Reset every connection, frozen ones too; how many."""
        return int(self._do(self._cut))

    def freeze(self, *, new: bool = True) -> None:
        """From now on nothing passes, on old connections and (`new`) on new ones, and nobody is told."""
        self._do(lambda: self._set_gates(is_open=False, new=new))

    def thaw(self) -> None:
        """Let pass what has waited, and what comes."""
        self._do(lambda: self._set_gates(is_open=True, new=True))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    # --- inside the loop --------------------------------------------------------------------------

    def _do(self, what: Callable[[], Any]) -> Any:
        async def inside() -> Any:
            return what()

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result()

    def _cut(self) -> int:
        pairs = list(self._pairs)
        for pair in pairs:
            pair.reset()
            pair.gate.set()
        return len(pairs)

    def _set_gates(self, *, is_open: bool, new: bool) -> None:
        self._frozen = new and not is_open
        for pair in self._pairs:
            if is_open:
                pair.gate.set()
            else:
                pair.gate.clear()

    async def _start(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        self._cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        pair = _Pair(writer)
        self._pairs.add(pair)
        try:
            if self._frozen:
                await pair.gate.wait()
            else:
                pair.gate.set()
            there_reader, there_writer = await asyncio.open_connection(*self.target)
            pair.ends = (writer, there_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, there_writer, pair))
                both.create_task(self._pump(there_reader, writer, pair))
        except (OSError, ExceptionGroup):
            pair.reset()  # one side is gone: the other one is told in the same way
        except asyncio.CancelledError:
            pair.reset()
        finally:
            self._pairs.discard(pair)
            self._tasks.discard(task)
            for end in pair.ends:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        while data := await reader.read(CHUNK):
            if self.latency:
                await asyncio.sleep(self.latency)
            await pair.gate.wait()
            writer.write(data)
            await writer.drain()
        await pair.gate.wait()
        with suppress(OSError):
            writer.write_eof()
