"""A look-up service on loopback that is slow, fails some requests and hangs at others."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class LookupService:
    """Answers `GET /<name>` with the name in capital letters."""

    delay: float = 0.0
    failing: float = 0.0
    """The share of requests that get status 503."""
    hanging: float = 0.0
    """The share of requests that get no answer."""
    seed: int = 0
    port: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    """How often each name was asked for."""
    keys: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The idempotency keys under which each name was asked for."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while request := (await reader.readuntil(b"\r\n\r\n")).decode():
                name = request.split()[1][1:]
                self.requests[name] += 1
                self.keys[name] |= {line[17:] for line in request.split("\r\n") if line.startswith("Idempotency-Key: ")}
                fate = self._draw.random()
                if fate < self.hanging:
                    await reader.read()  # until the client gives up
                    return
                await asyncio.sleep(self.delay)
                status = "503 Busy" if fate < self.hanging + self.failing else "200 OK"
                body = name.upper().encode()
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def running_service(service: LookupService) -> Iterator[LookupService]:
    """Run the service in a thread, on a free port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def begin() -> asyncio.Server:
        return await asyncio.start_server(service.serve, "127.0.0.1", service.port, backlog=1000)

    async def end() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
