"""A value that is written once: the first write wins, and everybody sees its value."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from tidewheel._cells.cell import CellWriter
from tidewheel._core.closing import Closing
from tidewheel._time.duration import Duration

T = TypeVar("T")


class Settled(NamedTuple, Generic[T]):
    """Whether this call's value won, and the value that won."""

    won: bool
    value: T


class Once(Closing, Generic[T]):
    """A cell that is never overwritten, as long as all programs use this class. See `Connection.once`."""

    def __init__(self, cell: CellWriter[T]) -> None:
        self._cell = cell

    def set(self, value: T, *, timeout: Duration | None = None) -> Settled[T]:
        """Write the value unless there is one; return the value that won.

        After `Offline`, call this again. If the first attempt had won, `won` is False then, and `value` is this call's
        own.
        """
        done = self._cell.compare_exchange(None, value, timeout=timeout)
        if done.applied:
            return Settled(True, value)
        assert done.seen is not None
        return Settled(False, done.seen)

    def get(self) -> T | None:
        """Return the value if it was set, as far as this process knows."""
        return self._cell.read()

    def wait(self, timeout: Duration | None = None) -> T:
        """Wait until the value is set; return it."""
        cell = self._cell
        return cell._wait(cell.read, timeout, "was not set")

    def close(self) -> None:
        """Stop following."""
        self._cell.close()
