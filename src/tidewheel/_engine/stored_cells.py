"""The cells of a stored job, for callers without its program: found by the job's name, checked against the declared types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidewheel._cells import open_cells
from tidewheel._cells.cell import CellWriter
from tidewheel._cells.declared import CheckedCodec, type_name
from tidewheel._cells.errors import WrongType
from tidewheel._cells.job_place import CONFIGURATION
from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
from tidewheel._engine.control import cells_of
from tidewheel._engine.declaration import Declaration, DeclaredCell, declaration, place_of_job
from tidewheel.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from tidewheel._cells.connection import Connection
    from tidewheel._storage import Store

_ANY_TYPE = ""


@dataclass(frozen=True)
class StoredCells:
    """Where the cells of a job are, and which it declares."""

    job: str
    url: str
    declaration: Declaration

    def declared(self, name: str) -> DeclaredCell:
        """Return a declared cell; raise a `ConfigError` that lists the declared cells if there is no such cell."""
        return self.declaration.cell(self.job, name)

    def open(self, connection: Connection, name: str, declared: Any = None) -> CellWriter[Any]:
        """Open a declared cell, with its declared type or `WrongType`.

        Without a type, it is read and written as plain numbers, texts, lists and dicts. What is written is checked
        against the declared type; a stored value is shown even if its type differs.
        """
        cell = self.declared(name)
        if declared is not None and type_name(declared) != cell.type:
            raise WrongType(
                f"the cell {name!r} of job {self.job!r} is declared as {cell.type} there, here as {type_name(declared)}; "
                "open it as its program declares it, or without a type"
            )
        opened: CellWriter[Any]
        if declared is not None:
            opened = connection.writer(name, declared, namespace=CONFIGURATION)
        else:
            codec = CheckedCodec(cell.checked_as)
            # Read it with any type: another version of the program may have written it.
            opened = connection.writer(name, codec, namespace=CONFIGURATION, type_name=_ANY_TYPE)
            opened.type_name = opened.type_name or cell.type
        opened.where = f"the cell {name!r} of job {self.job!r}"
        return opened

    def connect(self, name: str, declared: Any = None) -> CellWriter[Any]:
        """Open a declared cell with a connection of its own, which is closed with the cell."""
        self.declared(name)
        connection = open_cells(self.url)
        try:
            opened = self.open(connection, name, declared)
        except BaseException:
            connection.close()
            raise
        connection.close_with(opened)
        return opened


def stored_cells(store: Store, job: str, cells: str | None = None) -> StoredCells:
    """Find the cells of a job; `NotFound` if it was never started. `cells` is the URL in the program's `Job(cells=…)`."""
    declared = declaration(store, job)
    if declared is None and StreamCheckpoints(store, job).latest() is None:
        known = CheckpointStore(store).streams()
        there = f"; the jobs there are {', '.join(map(repr, known))}" if known else ""
        raise NotFound(
            f"job {job!r} has not been started at {store.url}, or is still starting{there}. Its cells are known once it has "
            f"been: start it with tidewheel run PROGRAM --state {store.url}, and try again. Until then the defaults in its "
            "program hold"
        )
    if declared is None:
        raise ConfigError(
            f"job {job!r} ran last in a version that did not store its cells; start it once, or say where they are "
            f"with --at URL --namespace {CONFIGURATION}"
        )
    return StoredCells(job, cells_of(place_of_job(store, job, cells)), declared)
