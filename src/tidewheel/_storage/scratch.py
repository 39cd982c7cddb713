"""A store that reads another one and keeps everything that is written to itself, in this process's memory."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Self

from tidewheel._storage import memory, open_store
from tidewheel._storage.base import Entry, Store, check_path
from tidewheel.errors import ConfigError, NotFound

_bases: dict[str, str] = {}
"""The URL of the store below each scratch store, by name."""


@contextlib.contextmanager
def scratch_over(url: str) -> Iterator[str]:
    """Provide the URL of a scratch store over the store at `url`, for this process and until the block ends."""
    name = secrets.token_hex(8)
    _bases[name] = url
    try:
        yield f"scratch:{name}"
    finally:
        del _bases[name]
        memory.forget(name)


class ScratchStore(Store):
    """The store `scratch:name`, as `scratch_over` names it."""

    def __init__(self, place: str) -> None:
        name, _, prefix = place.partition("/")
        if name not in _bases:
            raise ConfigError(f"there is no scratch store {name!r} in this process")
        base = open_store(_bases[name])
        self.url = f"scratch:{place}"
        self._base = base.at(prefix) if prefix else base
        self._own = memory.MemoryStore(place)

    def read(self, path: str) -> bytes:
        with contextlib.suppress(NotFound):
            return self._own.read(path)
        return self._base.read(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with contextlib.suppress(NotFound):
            return self._own.read_range(path, start, length)
        return self._base.read_range(path, start, length)

    def create(self, path: str, data: bytes) -> bool:
        with contextlib.suppress(NotFound):
            return self.read(path) == data
        return self._own.create(path, data)

    def write(self, path: str, data: bytes) -> None:
        self._own.write(path, data)

    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        found = {entry.path: entry for store in (self._base, self._own) for entry in store.list(prefix, after)}
        return [found[path] for path in sorted(found)]

    def delete(self, path: str) -> None:
        """Delete an object of the scratch store; objects of the store below stay."""
        self._own.delete(path)

    def at(self, prefix: str) -> Self:
        return type(self)(f"{self.url.removeprefix('scratch:')}/{check_path(prefix)}")
