"""The interface of all stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import msgspec

from tidewheel.errors import StorageError

_Names = list[str]

OTHER_STORE = "use a store with conditional puts: S3, GCS, Azure, or a server that honours If-None-Match"
"""What to do where `create` overwrites."""


class Entry(msgspec.Struct, frozen=True):
    """One object of a listing. `modified` is in seconds since 1970, by the store's clock."""

    path: str
    size: int
    modified: float


class Store(ABC):
    """A store of objects under relative paths.

    Paths have "/" between their parts; an empty part, "." and ".." are rejected. A store pickles as its URL, and can be
    used from several threads and processes at once.
    """

    url: str
    """The URL, which opens the same store in any process that can reach it."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the whole object; raise `NotFound` if there is none."""

    @abstractmethod
    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`; raise `StorageError` if the object ends earlier."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Create the object if there is none; durable before it returns.

        Return True if and only if the object now contains exactly `data`, so a repeated call whose first attempt had
        succeeded returns True. False means that the object has other bytes.
        """

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Create or replace the object, atomically; durable before it returns."""

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        """Return every object below the folder `prefix`, at any depth, sorted by path.

        `prefix` is a whole path: "a" finds "a/1", not "ab". With `after`, only paths greater than that are returned; an object
        store does not list the others. Temporary files are never listed.
        """

    def folders(self, prefix: str = "") -> _Names:
        """Return the names of the folders directly below the folder `prefix`, sorted.

        An object store lists them without listing their contents. A folder of a file system may be empty.
        """
        cut = len(prefix) + 1 if prefix else 0
        parts = (entry.path[cut:].split("/", 1) for entry in self.list(prefix))
        return sorted({part[0] for part in parts if len(part) == 2})

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the object, if it exists."""

    def move(self, path: str, to: str) -> None:
        """Move the object to another path, replacing any object there; raise `NotFound` if there is none.

        After a crash it may exist under both paths, but never under neither; the new one is complete and durable.
        """
        self.write(to, self.read(path))
        self.delete(path)

    @abstractmethod
    def at(self, prefix: str) -> Self:
        """Return the same store, rooted at the folder `prefix`."""

    def check_conditional(self) -> None:  # noqa: B027  Most stores need no check.
        """Refuse a store in which `create` overwrites an object that is there. Only a server may do this."""

    def __reduce__(self) -> tuple[Any, ...]:
        from tidewheel._storage import open_store

        return open_store, (self.url,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def check_path(path: str) -> str:
    """Return the path; raise if it is not below the root or not portable between stores."""
    for part in path.split("/"):
        if part in ("", ".", "..") or "\0" in part:
            raise StorageError(f"the path {path!r} is refused: it must be relative, without empty parts, '.' or '..'")
    return path


def check_length(path: str, url: str, start: int, length: int, found: bytes) -> bytes:
    """Return the bytes; raise if the object ends too early."""
    if len(found) != length:
        raise StorageError(
            f"{path} at {url} ends too early: {length} bytes asked for at {start}, {len(found)} found; "
            "the object was cut short or is not the one meant"
        )
    return found
