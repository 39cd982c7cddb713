"""What can go wrong with a cell."""

from __future__ import annotations

from typing import Any

from tidewheel.errors import TidewheelError


class CellError(TidewheelError, public="tidewheel.cells"):
    """Base of the errors of cells. `value` is what the caller wanted to write, given back; None if nothing was."""

    value: Any = None


class Offline(CellError):
    """The backend could not be reached in time. `maybe` says whether the write may have happened all the same."""

    def __init__(self, text: str, maybe: bool = False) -> None:
        super().__init__(text)
        self.maybe = maybe


class Encoding(CellError):
    """A value does not fit its declared type: on the way out nothing was sent, on the way in it is not shown."""


class Unreadable(CellError):
    """What a cell holds cannot be shown: its class, a validator or the backend raised an error. Others are not affected."""


class Closed(CellError):
    """The cell or its connection was closed."""


class WrongType(CellError):
    """The cell was declared with another type; `stored` is its name, where the cell was written with it."""

    def __init__(self, text: str, stored: str = "") -> None:
        super().__init__(text)
        self.stored = stored


class TooLarge(CellError):
    """The value is larger than the backend takes."""


class AccessRefused(CellError):
    """The backend refuses the user, the password or the permission."""


class TicketRefused(CellError):
    """A ticket is missing, forged, expired, revoked, or meant for somebody else."""


class LeaseLost(CellError):
    """Somebody else holds the lease now, or it lapsed."""
