"""The reference tables of a run: load them, notice when they change, and store each version next to the state."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel._checkpoint.manifest import Manifest, PinnedTable
from tidewheel._checkpoint.names import table_file
from tidewheel._checkpoint.table_files import write_part
from tidewheel._connectors.tables.table import Table
from tidewheel._core.logs import logger
from tidewheel._core.transient import is_transient
from tidewheel._core.user_code import described
from tidewheel._engine.plan import Plan
from tidewheel._engine.table_loading import LoadedTable, Unreadable, load_table
from tidewheel._engine.table_rows import read_schema
from tidewheel._operators.stateless.lookup import Lookup
from tidewheel._state.references import FileRef
from tidewheel._storage import Store
from tidewheel.errors import ConfigError, GraphError

_LOG = logger(__name__)

_PAUSES = (1.0, 2.0, 4.0)
"""Seconds before each repetition of a first load that failed with a transient error."""
_RETRY_NS = 60 * 10**9
"""After how long at most a failed refresh is tried again."""
_NEVER = 2**63


@dataclass(frozen=True)
class _Loaded:
    """A table that no commit has yet, and when it was read."""

    table: LoadedTable
    at: int

    @property
    def digest(self) -> str:
        return self.table.digest


class JobTables:
    """The tables that the steps of a run look up."""

    _sleep = staticmethod(time.sleep)

    def __init__(self, plan: Plan, store: Store, stream: str, token: str, n_shards: int) -> None:
        """Take the program, and where and under which name its run stores files. Nothing is loaded yet."""
        self.plan, self._store, self._stream, self._token = plan, store, stream, token
        self._n_shards = n_shards
        self.failed: Callable[[str], None] = lambda table: None
        """Called with the name of a table whose refresh has failed."""
        self._loaded: dict[str, _Loaded] = {}
        self._next: dict[str, int] = {}
        """When each table is to be loaded again, in ns; a table that was not checked yet has no entry."""
        self._fingerprints: dict[str, str | None] = {}

    def tables(self) -> list[Table]:
        """Return the tables that steps look up."""
        return list({table.name: table for _, table, _ in self._lookups()}.values())

    def refresh(self, head: Manifest | None, spark: Any, now: int) -> None:
        """Load the tables that are due. `head` is the newest commit, if there is one.

        A table that cannot be loaded raises an error if no version of it is there; else that version stays. Rows that are
        there and are not a table with this key raise a `ConfigError` in any case.
        """
        for table in self.tables():
            pinned = None if head is None else head.tables.get(table.name)
            if table.name not in self._next:
                self._begin(table, pinned, now)
            if pinned is None and table.name not in self._loaded:
                self._take(table, *self._first(table, spark), now)
            elif now >= self._next[table.name]:
                self._reload(table, spark, now)

    def pins(self, head: Manifest) -> dict[str, PinnedTable]:
        """Store the loaded rows for the commit after `head`, and return the table versions for the batches after it.

        A version gets a new number if its content differs from that of the version before.
        """
        pins = {}
        for table in self.tables():
            before, loaded = head.tables.get(table.name), self._loaded.get(table.name)
            if loaded is None or (before is not None and before.digest == loaded.digest):
                assert before is not None, "a table without a version was loaded"
                pins[table.name] = before
                self._loaded.pop(table.name, None)
                continue
            names = (table_file(head.sequence + 1, self._token, loaded.digest, n) for n in itertools.count())
            files: list[FileRef] = []
            begins = []
            for part in loaded.table.parts:
                begins.append(len(files))
                files += [write_part(self._store, self._stream, next(names), data()) for data in part]
            version = 1 if before is None else before.version + 1
            pins[table.name] = PinnedTable(
                version, loaded.table.rows, loaded.at, loaded.digest, tuple(files), tuple(begins[1:])
            )
        return pins

    def committed(self, head: Manifest) -> None:
        """Forget the rows that a commit has now."""
        for name, pinned in head.tables.items():
            loaded = self._loaded.get(name)
            if loaded is not None and loaded.digest == pinned.digest:
                del self._loaded[name]

    def _begin(self, table: Table, pinned: PinnedTable | None, now: int) -> None:
        """Take note of the version that an earlier run has loaded."""
        self._next[table.name] = now
        if pinned is not None:
            if table.refresh is not None:
                self._next[table.name] = min(now, pinned.loaded_at) + table.refresh
            self._check(table, read_schema(self._store, self._stream, pinned))

    def _first(self, table: Table, spark: Any) -> tuple[str | None, LoadedTable]:
        for pause in (*_PAUSES, None):
            try:
                return _fingerprint(table), load_table(table, spark, self._n_shards)
            except Unreadable as unreadable:
                error = unreadable.error
                if pause is None or not is_transient(error):
                    raise _cannot_load(table, error) from error
                _LOG.warning("%s; trying again in %g s", _cannot_load(table, error), pause)
            self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _reload(self, table: Table, spark: Any, now: int) -> None:
        try:
            fingerprint = _fingerprint(table)
            if fingerprint is not None and fingerprint == self._fingerprints.get(table.name):
                self._next[table.name] = _due(table, now)
                return
            loaded = load_table(table, spark, self._n_shards)
        except Unreadable as unreadable:
            _LOG.warning("%s; the version that was loaded last is used", _cannot_load(table, unreadable.error))
            self._next[table.name] = now + min(table.refresh or _RETRY_NS, _RETRY_NS)
            self.failed(table.name)
            return
        self._take(table, fingerprint, loaded, now)

    def _take(self, table: Table, fingerprint: str | None, loaded: LoadedTable, now: int) -> None:
        self._check(table, loaded.schema)
        self._loaded[table.name] = _Loaded(loaded, now)
        self._fingerprints[table.name] = fingerprint
        self._next[table.name] = _due(table, now)

    def _check(self, table: Table, schema: pa.Schema) -> None:
        """Refuse columns that do not fit the steps; the steps know the columns from now on."""
        before, table.schema = table.key_types(), schema
        now = table.key_types()
        assert now is not None, "its schema is known"
        if before is not None and any(
            old != new and not pa.types.is_null(old) for old, new in zip(before, now, strict=True)
        ):
            raise ConfigError(
                f"table {table.name!r}: its key had the type {', '.join(map(str, before))} and now has "
                f"{', '.join(map(str, now))}; the key of a table must keep its type"
            )
        for name, of, operator in self._lookups():
            if of is table:
                try:
                    operator.added(schema)
                except GraphError as error:
                    raise GraphError(f"step {name!r} (lookup): {error}") from None

    def _lookups(self) -> list[tuple[str, Table, Lookup]]:
        return [
            (node.name, node.operator.table, node.operator)
            for node in self.plan.nodes
            if isinstance(node.operator, Lookup)
        ]


def _fingerprint(table: Table) -> str | None:
    try:
        return table.source.fingerprint()
    except Exception as error:
        raise Unreadable(error) from error


def _due(table: Table, now: int) -> int:
    return _NEVER if table.refresh is None else now + table.refresh


def _cannot_load(table: Table, error: Exception) -> ConfigError:
    return ConfigError(f"table {table.name!r} ({table.source.describe()}) cannot be loaded: {described(error)}")
