"""Which cells a command is about: those of a job, as its program declares them, or those at a URL.

The options that say so are the same for every command; `of_cells` gives them to it.
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
from tidewheel.errors import ConfigError, NotFound

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


@dataclass(frozen=True)
class CellPlace:
    """Where cells are, and what is declared there."""

    url: str
    namespace: str
    program: str
    """What changes are signed with: the command."""
    job: str | None = None
    declared: Declaration | None = None

    def open(self) -> Connection:
        """Connect to the cells."""
        return open_cells(self.url, program=self.program)

    @contextmanager
    def cell(self, name: str) -> Iterator[CellWriter[Any]]:
        """Open a cell as whatever type it has. One of a job must be among those that the job declares."""
        declared = None if self.declared is None or self.job is None else self.declared.cell(self.job, name)
        with self.open() as connection:
            cell = found(connection, name, self.namespace)
            if declared is not None:
                cell.type_name = cell.type_name or declared.type
            yield cell


def found(connection: Connection, name: str, namespace: str) -> CellWriter[Any]:
    """Return a cell, as whatever type it has."""
    return connection.writer(name, Any, namespace=namespace, type_name=_ANY_TYPE)


def of_cells(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which cells are meant. It gets them as its first parameter, a `CellPlace`."""
    program = f"tidewheel cells {command.__name__.rstrip('_')}"
    options = _parameters(_place_of)[1:]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {option.name: given.pop(option.name) for option in options}
        command(_place_of(program, **chosen), **given)

    own = _parameters(command)[1:]
    needed = [parameter for parameter in own if parameter.default is parameter.empty]
    optional = [parameter for parameter in own if parameter.default is not parameter.empty]
    # What Typer makes a command's options of.
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
    """Return the cells that a command's options mean. A job wins over the environment's place of other cells."""
    if job is not None:
        return _of_job(program, job, state, cells)
    if at is None:
        raise ConfigError(
            "which cells? Those of a job are at --job JOB --state URL; others at --at URL, or at TIDEWHEEL_CELLS"
        )
    return CellPlace(at, namespace or DEFAULT_NAMESPACE, program)


def _of_job(program: str, job: str, state: str, cells: str | None) -> CellPlace:
    from tidewheel._checkpoint.store import CheckpointStore, StreamCheckpoints
    from tidewheel._engine.control import CONFIGURATION, cells_of
    from tidewheel._engine.declaration import declaration, place_of_job
    from tidewheel._storage import open_store

    store = open_store(state)
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
            f"job {job!r} ran last in a version that did not write down its cells; start it once, or say where they are "
            f"with --at URL --namespace {CONFIGURATION}"
        )
    return CellPlace(cells_of(place_of_job(store, job, cells)), CONFIGURATION, program, job, declared)
