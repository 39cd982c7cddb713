"""A connection: one backend and one stream of changes, shared by any number of cells."""

from __future__ import annotations

import threading
import weakref
from types import UnionType
from typing import Any, TypeVar, overload
from urllib.parse import quote

from tidewheel._cells.author import Signature
from tidewheel._cells.backends.base import Backend, Held
from tidewheel._cells.cell import Cell, CellReader, CellWriter
from tidewheel._cells.credentials import Validator
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.errors import Closed
from tidewheel._cells.job_place import HOLDER, NAMESPACES, ORDERS
from tidewheel._cells.map import CellMapReader, CellMapWriter
from tidewheel._cells.observed import Observed
from tidewheel._cells.once import Once
from tidewheel._core.closing import Closing
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError

T = TypeVar("T")
AnyMap = TypeVar("AnyMap", bound=CellMapReader[Any])
AnyCell = TypeVar("AnyCell", bound=Cell[Any])

DEFAULT_NAMESPACE = "default"
_MAX_NAME = 240
"""The maximum length in percent-encoded bytes: the name becomes a folder name, and file systems allow 255."""


class Connection(Closing):
    """Opens cells. Close it, or use it in a `with` block, to release threads and sockets.

    `timeout` is the default time limit of a command.
    """

    def __init__(self, backend: Backend, timeout: Duration, program: str | None = None) -> None:
        self.url = backend.url
        self.signature = Signature(program)
        self.timeout = seconds(timeout, "the timeout of cells")
        """In seconds."""
        self._backend = backend
        self._lock = threading.Lock()
        self._cells: dict[str, weakref.WeakSet[Cell[Any]]] = {}
        self._maps: weakref.WeakSet[CellMapReader[Any]] = weakref.WeakSet()
        self._online = False
        self.reconnects = 0
        """How often the backend answered again after an outage, in which changes may have been missed."""
        self._closed = False
        self._closes_with: weakref.ref[Cell[Any]] | None = None
        try:
            backend.start(self, self.deadline())
        except BaseException:
            backend.close()
            raise

    def deadline(self, timeout: Duration | None = None) -> Deadline:
        """Return the deadline of a command with this timeout; None uses the connection's timeout."""
        return Deadline(self.timeout if timeout is None else seconds(timeout, "the timeout"))

    @property
    def is_online(self) -> bool:
        """Whether the backend answers, as far as this process knows."""
        return self._online

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed."""
        return self._closed

    @overload
    def reader(
        self,
        name: str,
        declared: type[T],
        *,
        namespace: str = ...,
        type_name: str | None = ...,
        validator: Validator | None = ...,
    ) -> CellReader[T]: ...
    @overload
    def reader(
        self,
        name: str,
        declared: Any,
        *,
        namespace: str = ...,
        type_name: str | None = ...,
        validator: Validator | None = ...,
    ) -> CellReader[Any]: ...
    def reader(
        self,
        name: str,
        declared: Any,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
        validator: Validator | None = None,
    ) -> CellReader[Any]:
        """Follow a cell of this declared type. `type_name` replaces the name derived from the type.

        The cell has the newest value when this returns. Raises `WrongType` if the cell was declared with another type.
        `validator` has the effect of `require_ticket`: a value without a valid ticket is ignored, whatever its type.
        """
        cell: CellReader[Any] = CellReader(self, check_namespace(namespace), check_name(name), declared, type_name)
        return self._opened(cell if validator is None else cell.require_ticket(validator))

    @overload
    def writer(
        self,
        name: str,
        declared: type[T],
        *,
        namespace: str = ...,
        type_name: str | None = ...,
        validator: Validator | None = ...,
    ) -> CellWriter[T]: ...
    @overload
    def writer(
        self,
        name: str,
        declared: Any,
        *,
        namespace: str = ...,
        type_name: str | None = ...,
        validator: Validator | None = ...,
    ) -> CellWriter[Any]: ...
    def writer(
        self,
        name: str,
        declared: Any,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
        validator: Validator | None = None,
    ) -> CellWriter[Any]:
        """Follow and change a cell of this declared type; otherwise like `reader`."""
        cell: CellWriter[Any] = CellWriter(self, check_namespace(namespace), check_name(name), declared, type_name)
        return self._opened(cell if validator is None else cell.require_ticket(validator))

    def map_reader(
        self,
        name: str,
        declared: type[T] | UnionType,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
    ) -> CellMapReader[T]:
        """Follow all cells whose names start with `name/`, as one mapping."""
        return self._opened_map(CellMapReader(self, check_namespace(namespace), check_name(name), declared, type_name))

    def map_writer(
        self,
        name: str,
        declared: type[T] | UnionType,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
    ) -> CellMapWriter[T]:
        """Follow and change all cells whose names start with `name/`."""
        return self._opened_map(CellMapWriter(self, check_namespace(namespace), check_name(name), declared, type_name))

    def once(
        self,
        name: str,
        declared: type[T] | UnionType,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
    ) -> Once[T]:
        """Open a value that is written once."""
        return Once(self.writer(name, declared, namespace=namespace, type_name=type_name))

    def names(self, namespace: str = DEFAULT_NAMESPACE, prefix: str = "") -> list[str]:
        """Return the names of the cells that were ever written, sorted."""
        within = f"{check_namespace(namespace)}/"
        paths = self._backend.list(within + prefix, self.deadline())
        return sorted(path.removeprefix(within) for path in paths)

    def close(self) -> None:
        """Close the connection and all its cells."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for observed in self._observed():
            observed.close()
        self._backend.close()

    def close_with(self, cell: Cell[Any]) -> None:
        """Close the connection when this cell of it is closed."""
        self._closes_with = weakref.ref(cell)

    def __repr__(self) -> str:
        return f"Connection({self.url!r})"

    def changed(self, path: str, held: Held) -> None:
        """Report a change to all cells and maps that follow the path. Called by the backend."""
        with self._lock:
            cells = tuple(self._cells.get(path, ()))
            maps = tuple(self._maps)
        for cell in cells:
            cell._install(held)
        for held_map in maps:
            held_map._changed(path, held)

    def unreadable(self, path: str, error: Exception) -> None:
        """Report that the record at the path cannot be read. Called by the backend."""
        with self._lock:
            cells, maps = tuple(self._cells.get(path, ())), tuple(self._maps)
        for cell in cells:
            cell._hide(error)
        for held_map in maps:
            held_map._unreadable(path, error)

    def online(self) -> None:
        """Report that the backend answers. Called by the backend."""
        self._set_online(True)

    def offline(self, why: str) -> None:
        """Report that the backend does not answer. Called by the backend."""
        self._set_online(False)

    def _set_online(self, online: bool) -> None:
        with self._lock:
            self.reconnects += online and not self._online
            self._online = online
        for observed in self._observed():
            observed._set_online(online)

    def _observed(self) -> list[Any]:
        with self._lock:
            return [*(cell for cells in self._cells.values() for cell in cells), *self._maps]

    def _opened(self, cell: AnyCell) -> AnyCell:
        """Follow the cell first and then read it, so that no change is missed; raise if its declared type differs."""
        if self._closed:
            raise Closed(f"the connection to {self.url} was closed")
        with self._lock:
            self._cells.setdefault(cell.path, weakref.WeakSet()).add(cell)
        try:
            self._backend.follow(cell.path)
            cell.refresh()
            self._check_place(cell)
        except BaseException:
            cell.close()
            raise
        cell._set_online(self._online)
        return cell

    def _check_place(self, cell: Cell[Any]) -> None:
        """Refuse to create a cell in a job's location: the job would not see it."""
        if cell.namespace in NAMESPACES or cell._held.version:
            return
        if self._backend.load(f"{ORDERS}/{HOLDER}", self.deadline()).version:
            raise ConfigError(
                f"a job has its cells at {self.url}, and would not see {cell.name!r} in the namespace {cell.namespace!r}. Open a "
                f"cell that its program declares with StoredJob(JOB, state=…).cell({cell.name!r}), or with tidewheel cells … "
                "--job JOB; give cells of your own a URL of their own"
            )

    def _opened_map(self, opened: AnyMap) -> AnyMap:
        if self._closed:
            raise Closed(f"the connection to {self.url} was closed")
        with self._lock:
            self._maps.add(opened)
        try:
            self._backend.follow(f"{opened.namespace}/{opened.name}/")
            opened.refresh()
        except BaseException:
            opened.close()
            raise
        opened._set_online(self._online)
        return opened

    def _forget(self, observed: Observed) -> None:
        with self._lock:
            if isinstance(observed, CellMapReader):
                self._maps.discard(observed)
            elif isinstance(observed, Cell) and observed.path in self._cells:
                cells = self._cells[observed.path]
                cells.discard(observed)
                if not cells:
                    del self._cells[observed.path]
        if self._closes_with is not None and self._closes_with() is observed:
            self.close()


def check_name(name: str) -> str:
    """Return a cell's name or namespace; raise if it is invalid: a few printable characters, parts separated by "/".

    The same names are allowed in every backend.
    """
    if not name.isprintable() or not all(name.split("/")):
        raise ConfigError(f"{name!r} cannot name a cell: use printable characters, in parts divided by single slashes")
    if (size := len(quote(name, safe=""))) > _MAX_NAME:
        raise ConfigError(
            f"{name!r} is too long to name a cell: percent-encoded it has {size} bytes, and at most {_MAX_NAME} are allowed. "
            "A letter or digit counts as one; others, and slashes, as three for each byte of UTF-8"
        )
    return name


def check_namespace(namespace: str) -> str:
    """Check a namespace: a valid name without slashes."""
    if "/" in namespace:
        raise ConfigError(f"{namespace!r} cannot be a namespace: only names may have slashes")
    return check_name(namespace)
