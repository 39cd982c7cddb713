"""Selection of the cells of a command: those of a job, as its program declares them, or those at a URL.

`of_cells` adds the options for this, which are the same for every command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel._cells import open_cells
from tidewheel._cells.connection import DEFAULT_NAMESPACE
from tidewheel._cli.stored import DEFAULT_STATE, State
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._cells.cell import CellWriter
    from tidewheel._cells.connection import Connection
    from tidewheel._engine.stored_cells import StoredCells

_ANY_TYPE = ""

JobOption = Annotated[
    str | None, typer.Option("--job", "-j", metavar="JOB", help="The job whose cells to use, wherever they are.")
]
CellsOption = Annotated[
    str | None, typer.Option("--cells", metavar="URL", help="With --job: the value of Job(cells=…) in its program.")
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", "-a", metavar="URL", envvar="TIDEWHEEL_CELLS", help="The URL of the cells: file:, s3:, etcd:, …"
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="With --at: the namespace of the cells.")
]


@dataclass(frozen=True)
class CellPlace:
    """The location of cells, and the declarations there."""

    url: str
    namespace: str
    program: str
    """The name of the command, recorded as the author of changes."""
    stored: StoredCells | None = None
    """The cells of a job; None selects any cell of the namespace."""

    def open(self) -> Connection:
        """Connect to the cells."""
        return open_cells(self.url, program=self.program)

    @contextmanager
    def cell(self, name: str) -> Iterator[CellWriter[Any]]:
        """Open a cell with whatever type it has. A cell of a job must be declared by the job."""
        if self.stored is not None:
            self.stored.declared(name)
        with self.open() as connection:
            yield self.found(connection, name)

    @contextmanager
    def standing(self, name: str) -> Iterator[CellWriter[Any]]:
        """Open a cell that was ever written or that the job declares. A formerly declared cell may have to be cleared."""
        with self.open() as connection:
            cell = connection.writer(name, Any, namespace=self.namespace, type_name=_ANY_TYPE)
            if not cell.version():
                if self.stored is None:
                    raise ConfigError(f"there is no cell {self.namespace}/{name} at {Url(self.url)}; check the name")
                self.stored.declared(name)
            yield cell

    def found(self, connection: Connection, name: str) -> CellWriter[Any]:
        """Return a cell with whatever type it has; values written to a job's cell are checked."""
        if self.stored is not None:
            return self.stored.open(connection, name)
        return connection.writer(name, Any, namespace=self.namespace, type_name=_ANY_TYPE)


def of_cells(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select cells to a command, which gets them as its first parameter, a `CellPlace`."""
    program = f"tidewheel cells {command.__name__.rstrip('_')}"
    options = _parameters(_place_of)[1:]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {option.name: given.pop(option.name) for option in options}
        command(_place_of(program, **chosen), **given)

    own = _parameters(command)[1:]
    needed = [parameter for parameter in own if parameter.default is parameter.empty]
    optional = [parameter for parameter in own if parameter.default is not parameter.empty]
    # Typer builds a command's options from its signature.
    with_options.__signature__ = inspect.Signature([*needed, *options, *optional])  # type: ignore[attr-defined]
    return with_options


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())


def _place_of(
    program: str,
    job: JobOption = None,
    state: State = DEFAULT_STATE,
    cells: CellsOption = None,
    at: At = None,
    namespace: Namespace = None,
) -> CellPlace:
    """Return the cells that a command's options select. A job takes precedence over the environment's URL of other cells."""
    if job is not None:
        return _of_job(program, job, state, cells)
    if at is None:
        raise ConfigError(
            "name the cells: --job JOB --state URL for those of a job, --at URL or TIDEWHEEL_CELLS for others"
        )
    return CellPlace(at, namespace or DEFAULT_NAMESPACE, program)


def _of_job(program: str, job: str, state: str, cells: str | None) -> CellPlace:
    from tidewheel._cells.job_place import CONFIGURATION
    from tidewheel._engine.stored_cells import stored_cells
    from tidewheel._storage import open_store

    stored = stored_cells(open_store(state), job, cells)
    return CellPlace(stored.url, CONFIGURATION, program, stored)
