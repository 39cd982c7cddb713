"""Cells for coroutines: the same cells with an async interface.

Reading stays a plain call, because it is local. Commands run in a worker thread; waits need no thread.

    async with aio.open("etcd://127.0.0.1:2379/app") as connection:
        threshold = await connection.writer("threshold", float)
        await threshold.write(0.5)
        await threshold.when.updated()
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from types import UnionType
from typing import Any, Generic, Self, TypeVar

from tidewheel._cells import open_cells, when
from tidewheel._cells.cell import Cell, CellReader, CellWriter, Exchange, Snapshot, Version
from tidewheel._cells.connection import DEFAULT_NAMESPACE, Connection
from tidewheel._cells.credentials import Ticket, Validator
from tidewheel._cells.errors import Closed
from tidewheel._core.urls import Url
from tidewheel._time.duration import Duration

__all__ = ["AsyncCell", "AsyncCellReader", "AsyncCellWriter", "AsyncConnection", "AsyncWhen", "open"]

T = TypeVar("T")
R = TypeVar("R")


async def _in_thread(call: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    return await asyncio.to_thread(functools.partial(call, *args, **kwargs))


class AsyncWhen(Generic[T]):
    """Waits in coroutines; see `When`."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell[T]) -> None:
        self._cell = cell

    async def online(self, timeout: Duration | None = None) -> None:
        """Wait until the backend answers and the cell is up to date."""
        await self._cell._wait_async(when.online(self._cell), timeout, "was not online")

    async def offline(self, timeout: Duration | None = None) -> None:
        """Wait until the backend stops answering."""
        await self._cell._wait_async(when.offline(self._cell), timeout, "was not offline")

    async def reaches(self, version: Version, timeout: Duration | None = None) -> Snapshot[T]:
        """Wait until the cell is at this version or a later one."""
        return await self._cell._wait_async(
            when.reached(self._cell, version), timeout, f"did not reach version {version}"
        )

    async def updated(self, timeout: Duration | None = None, since: Version | None = None) -> Snapshot[T]:
        """Wait for the next change: after the first await or, with `since`, after that version."""
        if since is not None:
            return await self.reaches(since + 1, timeout)
        await self._cell._wait_async(when.changed(self._cell), timeout, "did not change")
        return self._cell.snapshot()


class AsyncCell(Generic[T]):
    """The common part of readers and writers."""

    def __init__(self, cell: Cell[T]) -> None:
        self.read = self.get = cell.read
        self.is_empty = self.is_none = cell.is_empty
        self.is_some = cell.is_some
        self.version = cell.version
        self.snapshot = cell.snapshot
        self.last_change = cell.last_change
        self._cell = cell

    @property
    def is_online(self) -> bool:
        """Whether the backend answers, as far as this process knows."""
        return self._cell.is_online

    @property
    def when(self) -> AsyncWhen[T]:
        """Waits for this cell."""
        return AsyncWhen(self._cell)

    async def refresh(self, timeout: Duration | None = None) -> Snapshot[T]:
        """Read the cell from the backend and return it."""
        return await _in_thread(self._cell.refresh, timeout)

    async def watch(self, since: Version | None = None) -> AsyncIterator[Snapshot[T]]:
        """Yield the current value, then every change; see `Cell.watch`."""
        seen = -1 if since is None else since
        while True:
            try:
                snapshot = await self.when.reaches(seen + 1)
            except Closed:
                return
            seen = snapshot.version
            yield snapshot

    def require_ticket(self, validator: Validator) -> Self:
        """Show only values whose writer had a valid ticket; see `Cell.require_ticket`."""
        self._cell.require_ticket(validator)
        return self

    def close(self) -> None:
        """Stop following."""
        self._cell.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cell!r})"


class AsyncCellReader(AsyncCell[T]):
    """A reader of a cell, which cannot change it."""


class AsyncCellWriter(AsyncCell[T]):
    """A reader and writer of a cell. A cancelled command may have been committed anyway."""

    def __init__(self, cell: CellWriter[T]) -> None:
        super().__init__(cell)
        self._writer = cell

    def present(self, ticket: Ticket | str | None) -> Self:
        """Send this ticket with every command from now on."""
        self._writer.present(ticket)
        return self

    async def write(self, value: T, *, timeout: Duration | None = None) -> Version:
        """Replace the value; return the version of that commit."""
        return await _in_thread(self._writer.write, value, timeout=timeout)

    set = write

    async def clear(self, *, timeout: Duration | None = None) -> Version:
        """Empty the cell; return the version of that commit."""
        return await _in_thread(self._writer.clear, timeout=timeout)

    async def forget(self, *, timeout: Duration | None = None) -> Version:
        """Empty the cell and remove its declared type."""
        return await _in_thread(self._writer.forget, timeout=timeout)

    async def compare_exchange(
        self, current: T | None, new: T | None, *, timeout: Duration | None = None
    ) -> Exchange[T]:
        """Write `new` if the cell holds `current`; None means empty."""
        return await _in_thread(self._writer.compare_exchange, current, new, timeout=timeout)

    async def compare_exchange_at(
        self, version: Version, new: T | None, *, timeout: Duration | None = None
    ) -> Exchange[T]:
        """Write `new` if the cell is still at `version`; 0 means never written."""
        return await _in_thread(self._writer.compare_exchange_at, version, new, timeout=timeout)

    async def update(self, change: Callable[[T | None], T | None], *, timeout: Duration | None = None) -> Snapshot[T]:
        """Replace the value by the result of `change`, called in a worker thread."""
        return await _in_thread(self._writer.update, change, timeout=timeout)


class AsyncConnection:
    """Opens cells for coroutines; use it in an `async with` block."""

    def __init__(self, url: str, timeout: Duration, program: str | None) -> None:
        self._url = Url(url)
        self._timeout = timeout
        self._program = program
        self._connection: Connection | None = None

    @property
    def sync(self) -> Connection:
        """The synchronous connection, for operations without an async version."""
        if self._connection is None:
            raise Closed(f"the connection to {self._url} is not open; use it in an `async with` block")
        return self._connection

    async def reader(
        self,
        name: str,
        declared: type[T] | UnionType,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
        validator: Validator | None = None,
    ) -> AsyncCellReader[T]:
        """Follow a cell; see `Connection.reader`."""
        cell: CellReader[T] = await _in_thread(
            self.sync.reader, name, declared, namespace=namespace, type_name=type_name, validator=validator
        )
        return AsyncCellReader(cell)

    async def writer(
        self,
        name: str,
        declared: type[T] | UnionType,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        type_name: str | None = None,
        validator: Validator | None = None,
    ) -> AsyncCellWriter[T]:
        """Follow and change a cell; see `Connection.writer`."""
        cell: CellWriter[T] = await _in_thread(
            self.sync.writer, name, declared, namespace=namespace, type_name=type_name, validator=validator
        )
        return AsyncCellWriter(cell)

    async def names(self, namespace: str = DEFAULT_NAMESPACE, prefix: str = "") -> list[str]:
        """Return the names of the cells that were ever written, sorted."""
        return await _in_thread(self.sync.names, namespace, prefix)

    async def __aenter__(self) -> Self:
        self._connection = await _in_thread(open_cells, self._url, timeout=self._timeout, program=self._program)
        return self

    async def __aexit__(self, *_: object) -> None:
        await _in_thread(self.sync.close)


def open(url: str, *, timeout: Duration = "10 s", program: str | None = None) -> AsyncConnection:
    """Connect to the cells at a URL when the `async with` block is entered; see `cells.open`."""
    return AsyncConnection(url, timeout, program)
