"""Cells in this process's memory: for tests and single-process programs. Nothing is durable."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tidewheel._cells.backends.base import NOTHING, Backend, Held, Listener, Swap
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.errors import Offline

_LIMIT = 64 * 2**20


class _Broker:
    """The data that all connections to one name share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: dict[str, Held] = {}
        self.listeners: list[Listener] = []
        self.up = True


_named: dict[str, _Broker] = {}


class MemoryBackend(Backend):
    """`memory:name` is shared by all connections in this process; `memory:` is private to its connection."""

    limit = _LIMIT
    removes = True

    def __init__(self, name: str) -> None:
        self.url = f"memory:{name}"
        self._broker = _named.setdefault(name, _Broker()) if name else _Broker()
        self._listener: Listener | None = None

    def start(self, listener: Listener, deadline: Deadline) -> None:
        with self._up():
            self._broker.listeners.append(listener)
        self._listener = listener
        listener.online()

    def follow(self, path: str) -> None:
        """Do nothing: every connection gets every change."""

    def load(self, path: str, deadline: Deadline, known: int = 0) -> Held:
        with self._up():
            return self._broker.held.get(path, NOTHING)

    def swap(self, path: str, base: Held, record: bytes, deadline: Deadline) -> Swap:
        with self._up():
            held = self._broker.held.get(path, NOTHING)
            if held.version != base.version:
                return Swap(False, held)
            held = self._broker.held[path] = Held(base.version + 1, record)
            listeners = tuple(self._broker.listeners)
        for listener in listeners:
            listener.changed(path, held)
        return Swap(True, held)

    def remove(self, path: str, version: int, deadline: Deadline) -> bool:
        with self._up():
            held = self._broker.held.get(path, NOTHING)
            if held.version != version or held.record is None:
                return False
            # Keep the version, like etcd's revision.
            gone = self._broker.held[path] = Held(version + 1, None)
            listeners = tuple(self._broker.listeners)
        for listener in listeners:
            listener.changed(path, gone)
        return True

    def list(self, prefix: str, deadline: Deadline) -> dict[str, Held]:
        with self._up():
            standing = [(path, held) for path, held in self._broker.held.items() if held.record is not None]
        return {path: held for path, held in standing if path.startswith(prefix)}

    def close(self) -> None:
        with self._broker.lock:
            if self._listener in self._broker.listeners:
                self._broker.listeners.remove(self._listener)

    @contextlib.contextmanager
    def _up(self) -> Iterator[None]:
        with self._broker.lock:
            if not self._broker.up:
                raise Offline(f"{self.url} is out of reach: a test has said so")
            yield


@contextlib.contextmanager
def outage(url: str) -> Iterator[None]:
    """Make `memory:name` unreachable during the block, to test how a program handles `Offline`."""
    broker = _named.setdefault(url.removeprefix("memory:"), _Broker())
    with broker.lock:
        broker.up = False
    for listener in tuple(broker.listeners):
        listener.offline("a test has said so")
    try:
        yield
    finally:
        with broker.lock:
            broker.up = True
        for listener in tuple(broker.listeners):
            listener.online()
