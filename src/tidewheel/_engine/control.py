"""A job's own cells: its lease, the orders given to it, and its live configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from tidewheel._cells import open_cells
from tidewheel._cells.cell import CellWriter
from tidewheel._cells.connection import Connection
from tidewheel._cells.declared import type_name
from tidewheel._cells.errors import CellError, Encoding, WrongType
from tidewheel._cells.job_place import CONFIGURATION, ORDERS
from tidewheel._cells.live import JobCell
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.manifest import PinnedCell
from tidewheel._checkpoint.names import CELLS, DEFAULT_STATE, folder
from tidewheel._core.urls import Url
from tidewheel._storage import open_store


class Control(msgspec.Struct, frozen=True):
    """Orders for a running job; the run reads them before each batch."""

    parallelism: int | None = None


class StopOrder(msgspec.Struct, frozen=True):
    """An order to end. It is for one run alone: the next start of the job does not obey it."""

    run: str
    """The run's token."""


def cells_url(state: str, job: str) -> str:
    """Return the default place of a job's cells: in the folder of its state."""
    return open_store(state).at(f"{folder(job)}/{CELLS}").url


def cells_of(place: JobPlace) -> str:
    """Return where the cells of a job at a place are."""
    if not place.cells:
        return cells_url(place.state, place.job)
    url, mark, settings = place.cells.partition("?")
    return f"{url.rstrip('/')}/{place.job}{mark}{settings}"


def rescale(url: str, parallelism: int | None) -> int:
    """Tell a job, from any process, how many tasks to use from its next batch on; return the version of the order.

    None: as many as its run was started with.
    """
    with open_cells(url) as connection:
        return int(_control(connection).write(Control(parallelism)))


def order_stop(connection: Connection, run: str) -> None:
    """Tell one run, from any process, to end when its batch is committed and published."""
    _stop(connection).write(StopOrder(run))


def forget_orders(connection: Connection) -> None:
    """Delete the orders for the job: its parallelism, and the order to stop."""
    for cell in (_control(connection), _stop(connection)):
        if cell.read() is not None:
            cell.clear()


def _stop(connection: Connection) -> CellWriter[StopOrder]:
    # Not a field of `Control`: a rescale overwrites all of `Control`.
    return connection.writer("stop", StopOrder, namespace=ORDERS, type_name="tidewheel.StopOrder")


def _control(connection: Connection) -> CellWriter[Control]:
    return connection.writer("control", Control, namespace=ORDERS, type_name="tidewheel.Control")


class JobCells:
    """A run's connection to the job's cells. Reads are local: a batch never waits for the cells' server."""

    def __init__(self, url: str, declared: tuple[JobCell[Any], ...], place: JobPlace | None = None) -> None:
        """Connect and follow the control cell and the declared ones. `place` is for errors: which job's cells these are."""
        self._place = place
        self.connection = open_cells(url)
        self._control = _control(self.connection)
        self._stop = _stop(self.connection)
        self._declared = []
        try:
            for cell in declared:
                with self._explained(cell):
                    reader = self.connection.reader(cell.name, cell.declared, namespace=CONFIGURATION)
                self._declared.append((cell, reader))
        except BaseException:
            self.connection.close()
            raise

    def parallelism(self) -> int | None:
        """Return the number of tasks that was ordered for the job, or None."""
        control = self._control.read()
        return None if control is None else control.parallelism

    def stop_ordered(self, run: str) -> bool:
        """Return whether this run was ordered to stop. An order that cannot be read is ignored: it must not fail a batch."""
        try:
            order = self._stop.read()
        except CellError:
            return False
        return order is not None and order.run == run

    def pin(self) -> dict[str, PinnedCell]:
        """Return the snapshot of each declared cell for the next batch."""
        pinned = {}
        for cell, reader in self._declared:
            with self._explained(cell):
                snapshot = reader.snapshot()
            value = None if snapshot.value is None else cell.encode(snapshot.value)
            pinned[cell.name] = PinnedCell(int(snapshot.version), value)
        return pinned

    def refresh(self) -> None:
        """Read the declared cells now: the next batch sees all values that were written before this call."""
        for _, reader in self._declared:
            reader.refresh()

    @contextlib.contextmanager
    def _explained(self, cell: JobCell[Any]) -> Iterator[None]:
        """Name the job and the command that clears an invalid cell value."""
        try:
            yield
        except (Encoding, WrongType) as error:
            if self._place is None:
                raise
            job, state, declared = self._place.job, self._place.state, type_name(cell.declared)
            where = f"--job {job}" if state == DEFAULT_STATE else f"--job {job} --state {Url(state)}"
            clear = f"tidewheel cells clear {cell.name} {where}"
            if isinstance(error, WrongType):
                raise WrongType(
                    f"the cell {cell.name!r} of job {job!r} is declared as {declared}, and its value was written when it was "
                    f"declared as {error.stored}. Forget that value and its type with {clear}, and the default holds until the "
                    f"cell is set again; or declare it as {error.stored}, or under another name",
                    error.stored,
                ) from error
            raise Encoding(
                f"the cell {cell.name!r} of job {job!r} holds a value that is not of its declared type, {declared}: "
                f"{error.__cause__ or error}. Set a right one with tidewheel cells set {cell.name} "
                f"VALUE {where}, or go back to the default with {clear}"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
