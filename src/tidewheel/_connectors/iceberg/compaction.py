"""Rewrite small data files of an Iceberg table into larger ones, in one snapshot."""

from __future__ import annotations

import functools
import math
import secrets
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tidewheel._connectors.files.compaction import Compaction, small_groups
from tidewheel._connectors.files.data_files import TaskFiles
from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel._connectors.iceberg.commits import FileChange, change_files
from tidewheel._connectors.iceberg.files import TableFiles, described, has_delete_files
from tidewheel._connectors.iceberg.io_store import place_of
from tidewheel._connectors.marker import Outrun
from tidewheel._connectors.sink import Staging
from tidewheel._connectors.staging import read_token
from tidewheel._core import faults
from tidewheel.errors import ConfigError, ConnectorUnavailable, StepError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot

COMPACTED = ("tidewheel compact", "")
"""The job and the sink in the names of files that a compaction writes."""
_SUMMARY = "tidewheel.compaction"
_TRIES = 10

REWRITTEN = faults.declare("iceberg.rewritten", "a compaction has written its files, and no snapshot names them")


def compact_branch(name: TableName, branch: str, target_bytes: int) -> Compaction:
    """Compact a branch of a table."""
    who = "the compaction"
    table = name.load(who)
    if table is None:
        raise ConfigError(f"there is no Iceberg table {name}")
    head = table.metadata.snapshot_by_name(branch)
    if head is None:
        return Compaction(0, 0)
    old, new = name.explained(who, functools.partial(_rewritten, table, head, target_bytes, name))
    if not old:
        return Compaction(0, 0)
    faults.point(REWRITTEN)
    _replace(name, table, branch, old, new)
    return Compaction(len(old), len(new))


def compacted_at(table: Table) -> float | None:
    """Return when a compaction last changed the table, in seconds since 1970."""
    times = [
        each.timestamp_ms / 1000
        for each in table.metadata.snapshots
        if each.summary is not None
        and (each.summary.operation.value == "replace" or _SUMMARY in each.summary.additional_properties)
    ]
    return max(times, default=None)


def _rewritten(
    table: Table, head: Snapshot, target_bytes: int, name: TableName
) -> tuple[list[IcebergFile], list[IcebergFile]]:
    """Write the rows of small files to larger ones; return the old files and the new ones."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    _refuse_deletes(table, head, name)
    by_partition: dict[tuple[Any, ...], list[FileScanTask]] = defaultdict(list)
    for task in table.scan(snapshot_id=head.snapshot_id).plan_files():
        if task.file.spec_id == table.spec().spec_id:
            by_partition[tuple(task.file.partition[place] for place in range(len(table.spec().fields)))].append(task)
    old: list[IcebergFile] = []
    new: list[IcebergFile] = []
    reader = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    for tasks in by_partition.values():
        for group in small_groups(((task, task.file.file_size_in_bytes) for task in tasks), target_bytes):
            staging = Staging(place_of(table).store, *COMPACTED, 0, f"{secrets.token_hex(6)}-0-0")
            files = TableFiles(table, staging, rounds=True, file_bytes=math.inf)
            for batch in reader.to_record_batches(group):
                if batch.num_rows:
                    files.write(batch)
            token = files.prepare()
            written = () if token is None else read_token(token, TaskFiles, "compact").files
            replaced = [task.file for task in group]
            entries = [described(table, file, "compact") for file in written]
            if sum(file.record_count for file in replaced) != sum(file.record_count for file in entries):
                raise StepError("the files of a group have another number of rows than the table says")
            old += replaced
            new += entries
    return old, new


def _replace(name: TableName, table: Table, branch: str, old: list[IcebergFile], new: list[IcebergFile]) -> None:
    """Replace the files in one snapshot, also if other writers add snapshots meanwhile."""
    who = "the compaction"

    def replace() -> None:
        head = table.metadata.snapshot_by_name(branch)
        assert head is not None
        _refuse_deletes(table, head, name)
        change_files(table, branch, FileChange(new, old), {_SUMMARY: "true"})

    for _ in range(_TRIES):
        try:
            return name.explained(who, replace)
        except Outrun:
            name.explained(who, table.refresh)
    raise ConnectorUnavailable(f"the Iceberg table {name} changed {_TRIES} times while files were replaced; try again")


def _refuse_deletes(table: Table, head: Snapshot, name: TableName) -> None:
    """Refuse delete files: they apply to files that are older than they are, so a rewritten row would appear again."""
    if has_delete_files(table, head):
        raise ConfigError(
            f"the Iceberg table {name} has delete files, which this compaction does not apply; compact it with an engine "
            "that does, such as Spark (rewrite_data_files)"
        )
