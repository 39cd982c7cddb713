"""Cells: one value, agreed on everywhere.

>>> with open("memory:") as connection:
...     threshold = connection.writer("threshold", float)
...     version = threshold.write(0.5)
...     threshold.read(), threshold.compare_exchange(0.5, 0.75).applied, threshold.read()
(0.5, True, 0.75)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidewheel._cells import open_cells as open
from tidewheel._cells.author import Author
from tidewheel._cells.cell import Cell, CellReader, CellWriter, Change, Exchange, Snapshot, Version
from tidewheel._cells.connection import Connection
from tidewheel._cells.credentials import Ticket
from tidewheel._cells.election import leader_election
from tidewheel._cells.errors import (
    AccessRefused,
    CellError,
    Closed,
    Encoding,
    LeaseLost,
    Offline,
    TicketRefused,
    TooLarge,
    Unreadable,
    WrongType,
)
from tidewheel._cells.lease import Lease
from tidewheel._cells.map import CellMapReader, CellMapWriter
from tidewheel._cells.once import Once
from tidewheel._cells.when import When
from tidewheel._core.text import no_attribute
from tidewheel._subjects import added, load

if TYPE_CHECKING:
    from tidewheel._cells.tickets.signed import TicketIssuer, TicketValidator

__all__ = [
    "AccessRefused",
    "Author",
    "Cell",
    "CellError",
    "CellMapReader",
    "CellMapWriter",
    "CellReader",
    "CellWriter",
    "Change",
    "Closed",
    "Connection",
    "Encoding",
    "Exchange",
    "Lease",
    "LeaseLost",
    "Offline",
    "Once",
    "Snapshot",
    "Ticket",
    "TicketIssuer",
    "TicketRefused",
    "TicketValidator",
    "TooLarge",
    "Unreadable",
    "Version",
    "When",
    "WrongType",
    "leader_election",
    "open",
]

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.
    __all__ = [name for name in __all__ if name in globals() or name in added("cells")]

    def __getattr__(name: str) -> Any:
        if name in added("cells"):
            return globals().setdefault(name, load("cells", name))
        raise no_attribute(__name__, name, __all__)
