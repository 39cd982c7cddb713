"""Commits of an Iceberg table: one snapshot for a batch, with job, sink and sequence in its summary.

A snapshot is committed only if the branch still has the parent that the snapshot was made for. So of two drivers with the same
batch one succeeds. The other one reads the table again, and finds the batch in the summaries.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tidewheel._connectors.iceberg.catalog import TableName
from tidewheel._connectors.iceberg.files import has_delete_files, unsupported
from tidewheel._connectors.marker import Marker, Outrun, digest
from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel.errors import ConnectorUnavailable, CorruptError, StepError, TidewheelError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table, Transaction

ADDING = faults.declare("iceberg.adding", "an iceberg sink's table is loaded, and the batch is not in it")
ADDED = faults.declare("iceberg.added", "an iceberg sink's batch is committed to its table, and not confirmed yet")

MAIN = "main"
_TRIES = 10
_SINK, _SEQUENCE, _DIGEST = "tidewheel.sink", "tidewheel.sequence", "tidewheel.digest"


class FileChange(NamedTuple):
    """The entries of files that a snapshot adds, and of files that it removes."""

    new: list[IcebergFile]
    old: Sequence[IcebergFile] = ()


class BranchCommits:
    """The commits of a sink to one branch of a table. One that `merges` replaces rows."""

    def __init__(self, name: TableName, branch: str, *, merges: bool = False) -> None:
        self._name, self._branch, self._merges = name, branch, merges

    def commit(
        self, table: Table, publication: Publication, own: Collection[str], change: Callable[[], FileChange]
    ) -> None:
        """Change the table in one snapshot, unless it already has the batch.

        `own` are the locations of files that tasks have written for the batch. `change` returns what changes. It is called
        again if another writer has changed the table.
        """
        who = f"sink {publication.sink!r}"
        summary = {
            _SINK: _sink_name(publication, self._branch),
            _SEQUENCE: str(publication.sequence),
            _DIGEST: str(digest(publication)),
        }
        for _ in range(_TRIES):
            if self._is_there(table, publication, own):
                return
            self.check_supported(table, who, StepError)
            faults.point(ADDING)
            try:
                self._start_branch(table, who)
                changed = change()
                self._name.explained(who, functools.partial(change_files, table, self._branch, changed, summary))
            except Outrun:
                # The conflicting commit may be our own, if its response was lost.
                self._name.explained(who, table.refresh)
                continue
            faults.point(ADDED)
            return
        raise self._overtaken(who)

    def add_columns(self, table: Table, who: str, columns: pa.Schema) -> None:
        """Add the columns that the table does not have. Rows get them later, so doing this again is harmless."""
        for _ in range(_TRIES):
            known = set(table.schema().column_names)
            lacking = [field.with_nullable(True) for field in columns if field.name not in known]
            if not lacking:
                return

            def add(lacking: list[pa.Field] = lacking) -> None:
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(lacking))

            with contextlib.suppress(Outrun):
                self._name.explained(who, add)
            self._name.explained(who, table.refresh)
        raise self._overtaken(who)

    def check_supported(self, table: Table, who: str, kind: type[TidewheelError]) -> None:
        """Raise an error of this kind if the table demands something of its writers that the sink does not do."""
        found = unsupported(table)
        head = table.metadata.snapshot_by_name(self._branch) or table.current_snapshot()
        if self._merges and head is not None and self._name.explained(who, lambda: has_delete_files(table, head)):
            found.append("delete files")
        ref = table.metadata.refs.get(self._branch)
        if ref is not None and ref.snapshot_ref_type.value != "branch":
            found.append(f"a tag with the name {self._branch} of the branch")
        if found:
            raise kind(
                f"{who}: the Iceberg table {self._name} rejects the output: it has {', '.join(found)}, which the sink does "
                "not support. Nothing committed is lost: remove that from the table, or write to another table, and "
                "start again"
            )

    def _start_branch(self, table: Table, who: str) -> None:
        """Create the branch of the sink from the main branch, unless it exists."""
        if self._branch == MAIN or self._branch in table.metadata.refs:
            return

        def start() -> None:
            if (head := table.current_snapshot()) is None:
                # A table without a snapshot can have no other branch.
                transaction = table.transaction()
                with transaction.update_snapshot().fast_append():
                    pass
                commit_once(table, transaction)
                head = table.current_snapshot()
            assert head is not None
            with table.manage_snapshots() as snapshots:
                snapshots.create_branch(head.snapshot_id, self._branch)

        self._name.explained(who, start)

    def _is_there(self, table: Table, publication: Publication, own: Collection[str]) -> bool:
        name = _sink_name(publication, self._branch)
        published: dict[int, int] = {}
        since = 0
        for snapshot in table.metadata.snapshots:
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if summary.get(_SINK) == name:
                try:
                    published[int(summary[_SEQUENCE])] = int(summary[_DIGEST])
                    since = max(since, snapshot.sequence_number or 0)
                except (KeyError, ValueError):
                    raise CorruptError(
                        f"sink {publication.sink!r}: the summary of the snapshot {snapshot.snapshot_id} of the Iceberg table "
                        f"{self._name} is invalid; another program has written it"
                    ) from None
        if Marker(published).has(publication):
            return True
        # The snapshot of the batch may have expired since, if the job was stopped for long. Tags keep older ones.
        return bool(own) and self._name.explained(
            f"sink {publication.sink!r}", functools.partial(_refers_to, table, self._branch, own, since)
        )

    def _overtaken(self, who: str) -> ConnectorUnavailable:
        return ConnectorUnavailable(
            f"{who}: the Iceberg table {self._name} changed {_TRIES} times while the output was added; the output is "
            "committed, and the next start adds it"
        )


def _sink_name(publication: Publication, branch: str) -> str:
    return f"{publication.job}:{publication.sink}" + (f"@{branch}" if branch != MAIN else "")


def _refers_to(table: Table, branch: str, locations: Collection[str], since: int) -> bool:
    """Return whether a manifest that is newer than a snapshot's sequence number names one of these files."""
    head = table.metadata.snapshot_by_name(branch)
    wanted = set(locations)
    for manifest in [] if head is None else head.manifests(table.io):
        if manifest.sequence_number and manifest.sequence_number <= since:
            continue
        if any(entry.data_file.file_path in wanted for entry in manifest.fetch_manifest_entry(table.io)):
            return True
    return False


def change_files(table: Table, branch: str, change: FileChange, summary: dict[str, str]) -> None:
    """Add and remove files in one snapshot. The client refuses to remove a file that another writer has removed."""
    transaction = table.transaction()
    update = transaction.update_snapshot(snapshot_properties=summary, branch=branch)
    # An append merges manifests, if a property of the table says so.
    with update.overwrite() if change.old else update.merge_append() as snapshot:
        for file in change.old:
            snapshot.delete_data_file(file)
        for file in change.new:
            snapshot.append_data_file(file)
    commit_once(table, transaction)


def commit_once(table: Table, transaction: Transaction) -> None:
    """Commit once. The client's own retry would not look for the batch in the commit that came first."""
    from pyiceberg.table.update import AssertTableUUID

    same = AssertTableUUID(uuid=table.metadata.table_uuid)
    table._do_commit(updates=transaction._updates, requirements=(*transaction._requirements, same))
