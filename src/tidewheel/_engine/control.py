"""A job's own cells: who holds it, what it was told to do, and its live configuration."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._cells import open_cells
from tidewheel._cells.cell import CellWriter
from tidewheel._cells.connection import Connection
from tidewheel._cells.live import JobCell
from tidewheel._checkpoint.names import folder
from tidewheel._storage import open_store

NAMESPACE = "job"
CONFIGURATION = "cells"
"""The namespace of the cells that a program declares."""


class Control(msgspec.Struct, frozen=True):
    """What a running job is told from outside; it is read before each batch."""

    parallelism: int | None = None


def cells_url(state: str, job: str) -> str:
    """Return where a job's cells are unless the job says otherwise: beside its state."""
    return open_store(state).at(f"{folder(job)}/cells").url


def rescale(url: str, parallelism: int) -> int:
    """Tell a job, from any process, how many tasks to use from its next batch on; return the version of the order."""
    with open_cells(url) as connection:
        return int(_control(connection).write(Control(parallelism)))


def _control(connection: Connection) -> CellWriter[Control]:
    return connection.writer("control", Control, namespace=NAMESPACE, type_name="tidewheel.Control")


class JobCells:
    """A run's connection to the job's cells. Reads are local: a batch never waits for the cells' server."""

    def __init__(self, url: str, declared: tuple[JobCell[Any], ...]) -> None:
        """Connect and follow the control cell and the declared ones."""
        self.connection = open_cells(url)
        self._control = _control(self.connection)
        self._declared = [
            (cell, self.connection.reader(cell.name, cell.declared, namespace=CONFIGURATION)) for cell in declared
        ]

    def parallelism(self) -> int | None:
        """Return the number of tasks that the job was told to use, if it was."""
        control = self._control.read()
        return None if control is None else control.parallelism

    def pin(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """Return the value of each declared cell, encoded, and its version: what the next batch sees."""
        values: dict[str, bytes] = {}
        versions: dict[str, int] = {}
        for cell, reader in self._declared:
            snapshot = reader.snapshot()
            versions[cell.name] = int(snapshot.version)
            if snapshot.value is not None:
                values[cell.name] = cell.encode(snapshot.value)
        return values, versions

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()
