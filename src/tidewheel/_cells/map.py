"""Many named cells under a prefix, watched together.

A map is a view of ordinary cells: `members/a` is the key "a" of the map "members". A key whose cell is empty is not in
the map. Removing a key empties its cell. The empty cell stays in the backend, so do not create new keys without limit,
or discard them if the backend supports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tidewheel._cells import when
from tidewheel._cells.backends.base import Held
from tidewheel._cells.cell import CellWriter, Exchange, Snapshot, Version
from tidewheel._cells.credentials import Ticket, Validator
from tidewheel._cells.declared import type_name
from tidewheel._cells.errors import Closed
from tidewheel._cells.observed import Observed
from tidewheel._core.closing import Closing
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError, TidewheelError

if TYPE_CHECKING:
    from tidewheel._cells.connection import Connection

T = TypeVar("T")


class MapWhen:
    """Waits for a map; see `When`."""

    __slots__ = ("_map",)

    def __init__(self, watched: Observed) -> None:
        self._map = watched

    def online(self, timeout: Duration | None = None) -> None:
        """Wait until the backend answers and the map is up to date."""
        self._map._wait(when.online(self._map), timeout, "was not online")

    def offline(self, timeout: Duration | None = None) -> None:
        """Wait until the backend stops answering."""
        self._map._wait(when.offline(self._map), timeout, "was not offline")

    def updated(self, timeout: Duration | None = None) -> None:
        """Wait until any key changes after this call."""
        self._map._wait(when.changed(self._map), timeout, "did not change")

    def holds(self, key: str, timeout: Duration | None = None) -> None:
        """Wait until the key is in the map."""
        held: Any = self._map
        held._wait(lambda: True if key in held else None, timeout, f"did not get the key {key!r}")


class CellMapReader(Observed, Closing, Mapping[str, T], Generic[T]):
    """A mapping of the last seen values, by key. Open one with `Connection.map_reader`."""

    __slots__ = ("_cells", "_connection", "_declared", "_prefix", "_type_name", "_validators", "name", "namespace")

    def __init__(
        self, connection: Connection, namespace: str, name: str, declared: Any, declared_as: str | None
    ) -> None:
        super().__init__(f"cells {namespace}/{name}/ at {connection.url}", connection.is_online)
        self.namespace = namespace
        self.name = name
        self._connection = connection
        self._declared = declared
        self._type_name = type_name(declared) if declared_as is None else declared_as
        self._prefix = f"{namespace}/{name}/"
        self._cells: dict[str, CellWriter[T]] = {}
        self._validators: tuple[Validator, ...] = ()

    def __getitem__(self, key: str) -> T:
        value = self.snapshot(key).value
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        """Yield the keys whose values can be read."""
        with self._condition:
            return iter([key for key in sorted(self._cells) if key in self])

    def __contains__(self, key: object) -> bool:
        try:
            return self._cells[key].is_some()  # type: ignore[index]
        except (KeyError, TidewheelError):
            return False

    @property
    def unreadable(self) -> dict[str, TidewheelError]:
        """The errors of keys whose values cannot be read. These keys are not in the mapping; `map[key]` raises the error."""
        with self._condition:
            errors = {key: self._cells[key].error for key in sorted(self._cells)}
        return {key: error for key, error in errors.items() if error is not None}

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._prefix} {dict(self)})"

    __hash__ = Observed.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def snapshot(self, key: str) -> Snapshot[T]:
        """Return value and version of one key; version 0 if it was never written."""
        if self._closed:
            raise Closed(f"{self.where} was closed")
        cell = self._cells.get(key)
        return Snapshot(0, None) if cell is None else cell.snapshot()

    def refresh(self, timeout: Duration | None = None) -> Self:
        """Read every key from the backend."""
        deadline = self._connection.deadline(timeout)
        backend = self._connection._backend
        listed = backend.list(self._prefix, deadline)
        with self._condition:
            known = {cell.path: cell._held.version for cell in self._cells.values()}
        for path, version in known.items():
            if version and path not in listed:
                listed[path] = backend.load(path, deadline, version)
        for path, held in listed.items():
            self._changed(path, held, again=True)
        return self

    @property
    def when(self) -> MapWhen:
        """Waits for this map."""
        return MapWhen(self)

    def require_ticket(self, validator: Validator) -> Self:
        """Show only values with a valid ticket, for every key; see `Cell.require_ticket`."""
        with self._condition:
            self._validators = (*self._validators, validator)
            for cell in self._cells.values():
                cell.require_ticket(validator)
        return self

    def close(self) -> None:
        """Stop following. Later reads and waits raise `Closed`."""
        self._connection._forget(self)
        self._mark_closed()

    def _cell(self, key: str) -> CellWriter[T]:
        """Return the cell of a key, which receives changes only through the map."""
        from tidewheel._cells.connection import check_name

        with self._condition:
            if key not in self._cells:
                name = check_name(f"{self.name}/{key}")
                cell: CellWriter[T] = CellWriter(
                    self._connection, self.namespace, name, self._declared, self._type_name
                )
                for validator in self._validators:
                    cell.require_ticket(validator)
                self._cells[key] = cell
            return self._cells[key]

    def _changed(self, path: str, held: Held, again: bool = False) -> None:
        self._pass_on(path, lambda cell: cell._install(held, again))

    def _unreadable(self, path: str, error: Exception) -> None:
        self._pass_on(path, lambda cell: cell._hide(error))

    def _pass_on(self, path: str, change: Callable[[CellWriter[T]], None]) -> None:
        if not path.startswith(self._prefix):
            return
        with self._condition:
            if self._closed:
                return
            try:
                cell = self._cell(path.removeprefix(self._prefix))
            except ConfigError:
                return  # This is not a valid cell name: the key belongs to another program in a shared location.
            before = cell._changes
            change(cell)
            if cell._changes != before:
                self._changes += 1
                self._notify()


class CellMapWriter(CellMapReader[T]):
    """A map whose keys can be written. Each command affects one key."""

    __slots__ = ("_ticket",)

    def __init__(
        self, connection: Connection, namespace: str, name: str, declared: Any, declared_as: str | None
    ) -> None:
        super().__init__(connection, namespace, name, declared, declared_as)
        self._ticket: Ticket | str | None = None

    def present(self, ticket: Ticket | str | None) -> Self:
        """Send this ticket with every command from now on."""
        self._ticket = ticket
        return self

    def write(self, key: str, value: T, *, timeout: Duration | None = None) -> Version:
        """Replace the value of a key."""
        return self._writer(key).write(value, timeout=timeout)

    def remove(self, key: str, *, timeout: Duration | None = None) -> Version:
        """Remove a key from the map, if it is there."""
        return self._writer(key).clear(timeout=timeout)

    @property
    def discards(self) -> bool:
        """Whether `discard` can delete cells from the backend."""
        return self._connection._backend.removes

    def discard(self, key: str, version: Version, *, timeout: Duration | None = None) -> bool:
        """Remove a key from the map and its cell from the backend, if it is still at `version`; return whether this was done.

        Also returns False for folders and object stores, where a cell must stay because its versions would restart.
        """
        cell = self._writer(key)
        deadline = self._connection.deadline(timeout)
        return self._connection._backend.remove(cell.path, version, deadline)

    def compare_exchange(
        self, key: str, current: T | None, new: T | None, *, timeout: Duration | None = None
    ) -> Exchange[T]:
        """Write `new` at a key if it holds `current`; None means that it is not in the map."""
        return self._writer(key).compare_exchange(current, new, timeout=timeout)

    def compare_exchange_at(
        self, key: str, version: Version, new: T | None, *, timeout: Duration | None = None
    ) -> Exchange[T]:
        """Write `new` at a key if it is still at `version`; 0 means never written."""
        return self._writer(key).compare_exchange_at(version, new, timeout=timeout)

    def _writer(self, key: str) -> CellWriter[T]:
        if self._closed:
            raise Closed(f"{self.where} was closed")
        return self._cell(key).present(self._ticket)
