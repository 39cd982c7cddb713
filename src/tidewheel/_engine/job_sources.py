"""The readers of a job's sources: the columns that the program reads, and the splits of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._connectors.source import SourceReader
from tidewheel._engine.batch_loop import Positions
from tidewheel._engine.plan import Plan, columns_read, known_columns
from tidewheel._engine.task import SourceSplit
from tidewheel._operators.graph import Node
from tidewheel.errors import ConfigError


class JobSources:
    """The open readers of all sources of a plan, each for the columns that the program reads."""

    def __init__(self, plan: Plan, readers: Mapping[str, SourceReader]) -> None:
        """Take a reader for each source. Raise a `ConfigError` if a source lacks a column that the program reads."""
        self.readers = readers
        nodes = plan.sources()
        known = known_columns(plan, {node.id: _records(readers[node.name].schema) for node in nodes})
        for node in nodes:
            wanted = _wanted(node, readers[node.name].schema, columns_read(plan, node, known))
            if wanted is not None:
                readers[node.name].project(wanted)
        self._read_by_code: dict[int, list[str]] = {}
        """By source number, the columns that the program's functions read; sources that they read completely are left out."""
        known = known_columns(plan, {node.id: _records(readers[node.name].schema) for node in nodes})
        for number, node in enumerate(nodes):
            names = columns_read(plan, node, known, by_code=True)
            # A name that is no column is for the function to fail on.
            if names is not None and set(names) < set(_records(readers[node.name].schema).names):
                self._read_by_code[number] = names

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns that are read, by source."""
        return {name: reader.schema for name, reader in self.readers.items()}

    def splits(self, start: Positions, end: Positions, tasks: int) -> list[SourceSplit]:
        """Return the splits of a batch in the order of the sources, enough to keep this many tasks busy."""
        return [
            (number, split)
            for number, (name, reader) in enumerate(self.readers.items())
            for split in (reader.splits(start[name], end[name], tasks) if start[name] != end[name] else ())
        ]

    def narrowed(self, splits: Sequence[SourceSplit]) -> list[SourceSplit] | None:
        """Return splits with only the columns that the program's functions read; None if that saves nothing."""
        names = self._read_by_code
        found = [(number, split.narrowed(names[number]) if number in names else split) for number, split in splits]
        return None if all(new is old for (_, new), (_, old) in zip(found, splits, strict=True)) else found


def _records(schema: pa.Schema) -> pa.Schema:
    """Return the record columns, without the column for bad lines."""
    place = schema.get_field_index(BAD_LINE)
    return schema if place < 0 else schema.remove(place)


def _wanted(node: Node, schema: pa.Schema, read: list[str] | None) -> list[str] | None:
    """Return the columns to read, None: all."""
    wanted = list(node.shapes[0].columns() or ()) if node.shapes[0].kind == "record" else read
    if wanted is None:
        return None
    known = _records(schema).names
    lacking = [name for name in wanted if name not in known]
    if lacking:
        raise ConfigError(
            f"source {node.name!r}: there is no column {', '.join(map(repr, lacking))}; it has {', '.join(known)}"
        )
    # Lines that are not records are rejected even if the program does not read the damaged columns.
    return [*wanted, BAD_LINE] if BAD_LINE in schema.names else wanted
