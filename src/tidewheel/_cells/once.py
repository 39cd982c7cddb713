"""A value that is written once: the first write wins, and everybody sees that one."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from tidewheel._cells.cell import CellWriter
from tidewheel._core.closing import Closing
from tidewheel._time.duration import Duration

T = TypeVar("T")


class Settled(NamedTuple, Generic[T]):
    """Whether this call's value is the one, and which one it is."""

    won: bool
    value: T


class Once(Closing, Generic[T]):
    """A cell that nobody overwrites, as long as all use it through this class. See `Connection.once`."""

    def __init__(self, cell: CellWriter[T]) -> None:
        self._cell = cell

    def set(self, value: T, *, timeout: Duration | None = None) -> Settled[T]:
        """Write the value unless there is one; return the one that stands.

        After `Offline`, call it again. If the lost attempt had won, `won` is False then, and `value` is this call's own.
        """
        done = self._cell.compare_exchange(None, value, timeout=timeout)
        if done.applied:
            return Settled(True, value)
        assert done.seen is not None
        return Settled(False, done.seen)

    def get(self) -> T | None:
        """Return the value if it was set, as far as is known here."""
        return self._cell.read()

    def wait(self, timeout: Duration | None = None) -> T:
        """Wait until the value is set; return it."""
        cell = self._cell
        return cell._wait(cell.read, timeout, "was not set")

    def close(self) -> None:
        """Stop following."""
        self._cell.close()
