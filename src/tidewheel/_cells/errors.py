"""Errors of cells."""

from __future__ import annotations

from typing import Any

from tidewheel.errors import TidewheelError


class CellError(TidewheelError, public="tidewheel.cells"):
    """Base of the errors of cells. `value` is the value that the caller tried to write; None if there was none."""

    value: Any = None


class Offline(CellError):
    """The backend could not be reached in time. `maybe` says whether the write may have happened anyway."""

    def __init__(self, text: str, maybe: bool = False) -> None:
        super().__init__(text)
        self.maybe = maybe


class Encoding(CellError):
    """A value does not match its declared type: it was not sent, or, if it was read, it is not shown."""


class Unreadable(CellError):
    """A value cannot be shown: its class, a validator or the backend raised an error. Other cells are not affected."""


class Closed(CellError):
    """The cell or its connection was closed."""


class WrongType(CellError):
    """The cell was declared with another type; `stored` is its name, if the cell was written with it."""

    def __init__(self, text: str, stored: str = "") -> None:
        super().__init__(text)
        self.stored = stored


class TooLarge(CellError):
    """The value is larger than the backend allows."""


class AccessRefused(CellError):
    """The backend rejects the user, the password or the permission."""


class TicketRefused(CellError):
    """A ticket is missing, forged, expired, revoked, or issued for another audience."""


class LeaseLost(CellError):
    """Another candidate holds the lease, or it expired."""
