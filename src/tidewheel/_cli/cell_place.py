"""Which cells a command is about: those of a job, as its program declares them, or those at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel._cells import open_cells
from tidewheel._cells.connection import DEFAULT_NAMESPACE
from tidewheel._cli.stored import State
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._cells.cell import CellWriter
    from tidewheel._cells.connection import Connection
    from tidewheel._engine.declaration import Declaration

_ANY_TYPE = ""

JobOption = Annotated[
    str | None, typer.Option("--job", "-j", metavar="JOB", help="A job, whose cells are meant, wherever they are.")
]
CellsOption = Annotated[
    str | None, typer.Option("--cells", metavar="URL", help="With --job: what its program gives as Job(cells=…).")
]
At = Annotated[
    str | None,
    typer.Option("--at", "-a", envvar="TIDEWHEEL_CELLS", help="Where the cells are: file:, s3:, etcd:, ..."),
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="With --at: the cells' namespace.")]
__all__ = ["At", "CellPlace", "CellsOption", "JobOption", "Namespace", "State", "found", "place_of"]


@dataclass(frozen=True)
class CellPlace:
    """Where cells are, and what is declared there."""

    url: str
    namespace: str
    job: str | None = None
    declared: Declaration | None = None

    @contextmanager
    def cell(self, name: str) -> Iterator[CellWriter[Any]]:
        """Open a cell as whatever type it has. One of a job must be among those that the job declares."""
        declared = None if self.declared is None or self.job is None else self.declared.cell(self.job, name)
        with open_cells(self.url) as connection:
            cell = found(connection, name, self.namespace)
            if declared is not None:
                cell.type_name = cell.type_name or declared.type
            yield cell


def found(connection: Connection, name: str, namespace: str) -> CellWriter[Any]:
    """Return a cell, as whatever type it has."""
    return connection.writer(name, Any, namespace=namespace, type_name=_ANY_TYPE)


def place_of(job: str | None, state: str, cells: str | None, at: str | None, namespace: str | None) -> CellPlace:
    """Return the cells that a command's options mean. A job wins over the environment's place of other cells."""
    if job is not None:
        return _of_job(job, state, cells)
    if at is None:
        raise ConfigError(
            "which cells? Those of a job are at --job JOB --state URL; others at --at URL, or at TIDEWHEEL_CELLS"
        )
    return CellPlace(at, namespace or DEFAULT_NAMESPACE)


def _of_job(job: str, state: str, cells: str | None) -> CellPlace:
    from tidewheel._cli.stored import job_place
    from tidewheel._engine.control import CONFIGURATION, cells_of
    from tidewheel._engine.declaration import declaration
    from tidewheel._program.stored_job import StoredJob

    stored = StoredJob(job, state=state)
    declared = declaration(stored.store, job)
    if declared is None:
        raise ConfigError(
            f"job {job!r} ran last in a version that did not write down its cells; start it once, or say where they are "
            f"with --at URL --namespace {CONFIGURATION}"
        )
    return CellPlace(cells_of(job_place(stored, cells)), CONFIGURATION, job, declared)
