"""A store that reads another one and keeps everything that is written in a place of its own."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator
from typing import Self

from tidewheel._storage import memory, open_store
from tidewheel._storage.base import Entry, Store, check_path
from tidewheel.errors import ConfigError, NotFound


@contextlib.contextmanager
def scratch_over(url: str, own: str | None = None) -> Iterator[str]:
    """Provide the URL of a scratch store over the store at `url`, until the block ends.

    What is written goes to the store at `own`, which other processes can reach if they can reach both; by default to the
    memory of this process. All of it is deleted at the end.
    """
    name = secrets.token_hex(8)
    place = own or f"memory:{name}"
    try:
        yield f"scratch:{_encoded(url)}.{_encoded(place)}"
    finally:
        if own is None:
            memory.forget(name)
        else:
            store = open_store(own)
            for entry in store.list():
                store.delete(entry.path)


class ScratchStore(Store):
    """The store at a URL that `scratch_over` provides."""

    def __init__(self, place: str) -> None:
        names, _, prefix = place.partition("/")
        try:
            base, own = (base64.urlsafe_b64decode(name.encode()).decode() for name in names.split("."))
        except ValueError:
            raise ConfigError(f"scratch:{names} is not the URL of a scratch store") from None
        self.url = f"scratch:{place}"
        self._base, self._own = (store.at(prefix) if prefix else store for store in (open_store(base), open_store(own)))

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


def _encoded(url: str) -> str:
    return base64.urlsafe_b64encode(url.encode()).decode()
