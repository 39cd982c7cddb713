"""A store in this process's memory, shared by all users of the same name. For tests and dry runs."""

from __future__ import annotations

import threading
import time
from typing import Self

from tidewheel._storage.base import Entry, Store, check_length, check_path
from tidewheel.errors import NotFound


class _Blobs:
    """The objects of one name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, float]] = {}


_named: dict[str, _Blobs] = {}


def forget(name: str) -> None:
    """Delete all objects of a name."""
    _named.pop(name, None)


class MemoryStore(Store):
    """The store `memory:name` or, with a deeper root, `memory:name/prefix`."""

    def __init__(self, name: str) -> None:
        name, _, prefix = name.strip("/").partition("/")
        self._blobs = _named.setdefault(name, _Blobs())
        self._prefix = f"{check_path(prefix)}/" if prefix else ""
        self.url = f"memory:{name}/{prefix}".rstrip("/")

    def read(self, path: str) -> bytes:
        with self._blobs.lock:
            held = self._blobs.objects.get(self._prefix + check_path(path))
        if held is None:
            raise NotFound(f"there is no {path} at {self.url}")
        return held[0]

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return check_length(path, self.url, start, length, self.read(path)[start : start + length])

    def create(self, path: str, data: bytes) -> bool:
        key = self._prefix + check_path(path)
        with self._blobs.lock:
            return self._blobs.objects.setdefault(key, (bytes(data), time.time()))[0] == data

    def write(self, path: str, data: bytes) -> None:
        with self._blobs.lock:
            self._blobs.objects[self._prefix + check_path(path)] = (bytes(data), time.time())

    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        within = self._prefix + (f"{check_path(prefix)}/" if prefix else "")
        cut = len(self._prefix)
        with self._blobs.lock:
            blobs = [(path, *held) for path, held in self._blobs.objects.items() if path.startswith(within)]
        return [Entry(path[cut:], len(data), modified) for path, data, modified in sorted(blobs) if path[cut:] > after]

    def delete(self, path: str) -> None:
        with self._blobs.lock:
            self._blobs.objects.pop(self._prefix + check_path(path), None)

    def at(self, prefix: str) -> Self:
        return type(self)(f"{self.url.removeprefix('memory:')}/{check_path(prefix)}")
