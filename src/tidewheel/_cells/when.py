"""Waiting for a cell: until it is online, offline, at a version, or changed.

Every wait takes a timeout such as "5 s" (None: no limit), after which it raises `TimeoutError`. It raises `Closed` when
the cell is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from tidewheel._time.duration import Duration

if TYPE_CHECKING:
    from tidewheel._cells.cell import Cell, Snapshot
    from tidewheel._cells.observed import Observed

T = TypeVar("T")


def online(observed: Observed) -> Callable[[], bool | None]:
    """Return a check whether the object is online."""
    return lambda: True if observed.is_online else None


def offline(observed: Observed) -> Callable[[], bool | None]:
    """Return a check whether the object is offline."""
    return lambda: None if observed.is_online else True


def changed(observed: Observed) -> Callable[[], bool | None]:
    """Return a check whether the object has changed since this call."""
    before = observed._changes
    return lambda: None if observed._changes == before else True


def reached(cell: Cell[T], version: int) -> Callable[[], Snapshot[T] | None]:
    """Return a check whether the cell is at that version or a later one."""
    return lambda: snapshot if (snapshot := cell.snapshot()).version >= version else None


class When(Generic[T]):
    """Waits in threads. `cells.aio` has the same waits for coroutines."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell[T]) -> None:
        self._cell = cell

    def online(self, timeout: Duration | None = None) -> None:
        """Wait until the backend answers and the cell is up to date."""
        self._cell._wait(online(self._cell), timeout, "was not online")

    def offline(self, timeout: Duration | None = None) -> None:
        """Wait until the backend stops answering."""
        self._cell._wait(offline(self._cell), timeout, "was not offline")

    def reaches(self, version: int, timeout: Duration | None = None) -> Snapshot[T]:
        """Wait until the cell is at this version or a later one."""
        return self._cell._wait(reached(self._cell, version), timeout, f"did not reach version {version}")

    def updated(self, timeout: Duration | None = None, since: int | None = None) -> Snapshot[T]:
        """Wait for the next change after the call or, with `since`, after that version, so that none is missed."""
        if since is not None:
            return self.reaches(since + 1, timeout)
        self._cell._wait(changed(self._cell), timeout, "did not change")
        return self._cell.snapshot()
