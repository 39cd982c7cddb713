"""The tables of sinks as the tasks of a process know them: the program does not have what changed after it started."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tidewheel._connectors.sink import Staging

Name = TypeVar("Name", bound=Hashable)
Table = TypeVar("Table")

_KNOWN_S = 300.0
"""How long a task uses a table as it has loaded it: the credentials of a catalog expire."""


class KnownTables(Generic[Name, Table]):
    """The tables that the tasks of this process have loaded, with the time and for the run in which they did so."""

    def __init__(self, load: Callable[[Name, str], Table | None]) -> None:
        """Take the function that loads a table, or returns None if there is none."""
        self._load = load
        self._known: dict[Name, tuple[str, float, Table]] = {}

    def get(self, name: Name, staging: Staging, fits: Callable[[Table], bool]) -> Table | None:
        """Return the table, loaded again if it is not fresh or does not fit; None if there is none."""
        run = staging.attempt.rsplit("-", 2)[0]
        if (known := self._known.get(name)) is not None:
            loaded_by, since, table = known
            if loaded_by == run and time.monotonic() - since < _KNOWN_S and fits(table):
                return table
        loaded = self._load(name, f"sink {staging.sink!r}")
        if loaded is not None:
            self._known[name] = (run, time.monotonic(), loaded)
        return loaded
