"""What every backend does for cells: hold a record and its version per path, exchange it, and tell of changes.

A path is `namespace/name`. Backends know nothing of values, types or tickets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Protocol

from tidewheel._cells.deadline import Deadline


class Held(NamedTuple):
    """What stands at a path: a record and the version at which it was committed. Version 0: never written.

    A version above 0 without a record: something else deleted what stood there.
    """

    version: int
    record: bytes | None


NOTHING = Held(0, None)


class Swap(NamedTuple):
    """Whether an exchange applied, and what stands after it."""

    applied: bool
    held: Held


class Listener(Protocol):
    """Gets the changes. Calls come from any thread, in any order, perhaps twice: versions tell what is newer."""

    def changed(self, path: str, held: Held) -> None:
        """A path has a newer record."""

    def unreadable(self, path: str, error: Exception) -> None:
        """What stands at this path cannot be read, for a reason that concerns this path alone."""

    def online(self) -> None:
        """The backend answers, and everything followed is up to date."""

    def offline(self, why: str) -> None:
        """The backend does not answer; changes may be missed until `online`."""


class Backend(ABC):
    """One connection to a backend. Safe to use from several threads.

    Every call that takes a deadline raises `Offline` when the backend cannot be reached by then.
    """

    url: str
    """Where it is, fit to be shown: without a password."""

    limit: int
    """The largest record in bytes."""

    removes: ClassVar[bool] = False
    """Whether `remove` can remove anything."""

    @abstractmethod
    def start(self, listener: Listener, deadline: Deadline) -> None:
        """Connect, and begin to tell the listener of changes."""

    @abstractmethod
    def follow(self, path: str) -> None:
        """Tell the listener of every change of this path from now on. A path that ends in "/" means all below it."""

    @abstractmethod
    def load(self, path: str, deadline: Deadline, known: int = 0) -> Held:
        """Return what stands now: at least as new as any exchange that had returned before, on any machine.

        `known` is the version that the caller has seen. If what it saw was deleted, the answer has a higher version and
        no record.
        """

    @abstractmethod
    def swap(self, path: str, base: Held, record: bytes, deadline: Deadline) -> Swap:
        """Put the record there if what stands is still `base`.

        `Offline.maybe` tells whether it may have been put although this call failed. Records are all
        different.
        """

    def remove(self, path: str, version: int, deadline: Deadline) -> bool:
        """Remove what stands at a path, if it is still of that version; False if it is not, and where it must stay.

        It must stay where versions would begin anew: whoever slept since could take an old one for today's.
        """
        return False

    @abstractmethod
    def list(self, prefix: str, deadline: Deadline) -> dict[str, Held]:
        """Return what stands at every path that starts with the prefix."""

    @abstractmethod
    def close(self) -> None:
        """Stop telling, and let go of threads and sockets."""
