"""The interface of backends: store a record and its version per path, exchange it, and report changes.

A path is `namespace/name`. Backends know nothing of values, types or tickets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Protocol

from tidewheel._cells.deadline import Deadline


class Held(NamedTuple):
    """A record and the version of its commit. Version 0: never written.

    A version above 0 without a record: another program deleted the record.
    """

    version: int
    record: bytes | None


NOTHING = Held(0, None)


class Swap(NamedTuple):
    """Whether an exchange applied, and the record after it."""

    applied: bool
    held: Held


class Listener(Protocol):
    """Receives changes. Calls come from any thread, in any order, possibly twice: compare versions."""

    def changed(self, path: str, held: Held) -> None:
        """Handle a newer record at a path."""

    def unreadable(self, path: str, error: Exception) -> None:
        """Handle a record that cannot be read, for a reason that affects only this path."""

    def online(self) -> None:
        """Handle that the backend answers and all followed paths are up to date."""

    def offline(self, why: str) -> None:
        """Handle that the backend does not answer; changes may be missed until `online`."""


class Backend(ABC):
    """One connection to a backend. Safe to use from several threads.

    Every call with a deadline raises `Offline` if the backend cannot be reached in time.
    """

    url: str
    """The backend's URL without a password, for display."""

    limit: int
    """The largest record in bytes."""

    removes: ClassVar[bool] = False
    """Whether `remove` is supported."""

    @abstractmethod
    def start(self, listener: Listener, deadline: Deadline) -> None:
        """Connect, and start to report changes to the listener."""

    @abstractmethod
    def follow(self, path: str) -> None:
        """Report every change of this path to the listener from now on. A path that ends in "/" means all paths below it."""

    @abstractmethod
    def load(self, path: str, deadline: Deadline, known: int = 0) -> Held:
        """Return the current record: at least as new as any exchange that returned before this call, on any machine.

        `known` is the newest version that the caller has seen. If that record was deleted, the answer has a higher
        version and no record.
        """

    @abstractmethod
    def swap(self, path: str, base: Held, record: bytes, deadline: Deadline) -> Swap:
        """Write the record if the current one is still `base`.

        `Offline.maybe` says whether the write may have happened although this call failed. All records are different.
        """

    def remove(self, path: str, version: int, deadline: Deadline) -> bool:
        """Delete the record at a path if it still has that version; return False if it has not, or if it must stay.

        A record must stay in backends whose versions would restart: a process that was suspended could mistake an old
        version for the current one.
        """
        return False

    @abstractmethod
    def list(self, prefix: str, deadline: Deadline) -> dict[str, Held]:
        """Return the records of all paths that start with the prefix."""

    @abstractmethod
    def close(self) -> None:
        """Stop reporting changes, and release threads and sockets."""
