"""files: a folder of Parquet or JSON-lines files, local or in an object store, exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, get_args

import msgspec
import pyarrow as pa

from tidewheel._connectors.files import hive
from tidewheel._connectors.files.compaction import TARGET_BYTES, CompactingSink, Compaction
from tidewheel._connectors.files.formats import CheckedFile, EncodedRows, Format, RowWriter, encoded
from tidewheel._connectors.files.held_output import HeldOutput
from tidewheel._connectors.files.output_files import OutputFiles
from tidewheel._connectors.files.places import explained, place_at
from tidewheel._connectors.files.table_columns import check_partitions
from tidewheel._connectors.files.target_folder import HIDDEN, OutputFile, TargetFolder, over_number, whole
from tidewheel._connectors.over_runs import over_stream, over_stream_of, refuse_over, streams_of
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import read_token, typed
from tidewheel._core import faults
from tidewheel._core.urls import Url
from tidewheel._storage import open_store
from tidewheel._storage.file import FileStore
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError, StepError, StorageError

WRITTEN = faults.declare("files.written", "a task's output file is durable in the staging folder")
PLACED = faults.declare("files.placed", "one output file is in place, others may not be, the marker is not set")
OVER = faults.declare("files.over", "a files sink has noted which runs of a fleet are over, their markers are there")
MARKED = faults.declare("files.marked", "a files sink's marker is set, what failed attempts left is not removed")

_CODECS = ("snappy", "zstd", "gzip", "none")


def files(
    path: str | os.PathLike[str],
    format: Format = "parquet",
    *,
    partition_by: str | Sequence[str] = (),
    compression: str = "snappy",
    compact: Duration | None = None,
) -> Files:
    """Write records to Parquet or JSON-lines files in a folder, exactly once: after any crash each record is in one file.

    Every task that has records writes one file per commit, named by job, sink, sequence and task. The file appears, complete,
    after the commit. While the files of a commit are published they appear one after the other; `whole_files` lists only
    complete commits. Readers must ignore the folder `_tidewheel` in `path`, which belongs to the sink, as Spark and Arrow do.

    The columns have the types of the records. Declare the return type of the step before the sink (`returns=…`), so that all
    files agree: a column that is null in a whole batch is missing in its Parquet file.

    - `path`: a folder that all tasks reach under the same path, or the URL of a place in an object store, such as
      `s3://bucket/out?endpoint=…&region=…`, with the credentials in the environment.
    - `partition_by`: columns whose values name the folders of the files, such as `day=2025-01-31/`.
    - `compression`: of Parquet files.
    - `compact`: hold back commits for at most this long, such as `"10 minutes"`, and publish their rows together in files of
      up to 128 MB. The end of a run publishes the rest. Published files never change. A restore cannot withdraw such output.
    """
    return Files(path, format, partition_by, compression, compact)


def whole_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the output files in a folder or store, by their paths in it. Files of incomplete commits are left out.

    A plain listing of the folder also has complete files only, but perhaps not yet all files of the newest commit.
    """
    return whole(place_at(os.fspath(path)))


class Files(CompactingSink):
    """Exactly once: tasks write hidden files into the target folder, and publishing moves them to their final paths.

    Publishing a sequence again finds its files there. Publishing a sequence below the marker does nothing, so a paused and
    replaced driver has no effect, even if readers have removed published files.
    """

    guarantee = "exactly once"

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Format = "parquet",
        partition_by: str | Sequence[str] = (),
        compression: str = "snappy",
        compact: Duration | None = None,
    ) -> None:
        super().__init__(compact)
        # A file with the rows of several commits cannot be withdrawn for some of them.
        self.retracts = compact is None
        self._holding: dict[tuple[str, str], TargetFolder] = {}
        """The folders of the sinks of this run that may have output that is held back."""
        if format not in get_args(Format):
            raise ConfigError(f"a files sink writes parquet or json, not {format!r}")
        if compression not in _CODECS:
            raise ConfigError(f"a files sink knows the compressions {', '.join(_CODECS)}, not {compression!r}")
        store = open_store(os.fspath(path))
        # An absolute path, because tasks may have other working directories.
        self.path = store.root if isinstance(store, FileStore) else store.url
        self.format: Format = format
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self.compression = compression

    def describe(self) -> str:
        return f"{self.format} files in {self.path}"

    def start(self, job: str) -> None:
        try:
            place_at(self.path).check(HIDDEN)
        except StorageError as error:
            raise ConfigError(f"the files sink cannot use its folder: {error}") from error

    def check(self, job: str, sink: str) -> None:
        if self.compact_every is not None and over_stream_of(job) is not None:
            raise ConfigError(
                f"sink {sink!r}: compact= does not work in a fleet, whose runs publish separately; remove it from the files sink"
            )
        folder = TargetFolder(place_at(self.path), job, sink)
        self._holding[job, sink] = folder
        before = folder.format() or HeldOutput(folder).format()
        if before is not None and before != self.format:
            raise ConfigError(
                f"sink {sink!r}: {self.path} has {before} files that it published, and it writes {self.format} now; its "
                f"readers would meet both. Give the sink another folder, or format={before!r} as before; or start from scratch "
                "with `tidewheel reset PROGRAM.py --output`, which removes the job's state and what it has published"
            )

    def open(self, staging: Staging) -> SinkPartition:
        return _FilesPartition(self, staging)

    def publish(self, publication: Publication) -> None:
        sequence = publication.sequence
        folder = TargetFolder(place_at(self.path), publication.job, publication.sink)
        placed = [
            folder.checked(file, sequence)
            for token in publication.tokens
            for file in read_token(token, list[OutputFile], publication.sink)
        ]
        if not placed:
            return
        marker = folder.marker()
        if sequence <= marker:
            folder.refuse_other_life(placed, sequence, marker)
            return
        if not marker:
            refuse_over(publication, over_number(folder.place, publication.job, publication.sink))
        name = (publication.job, publication.sink)
        if self.compact_every is not None:
            self._holding[name] = folder
            HeldOutput(folder).hold(placed, sequence)
            self.compact_if_due()
            return
        if name in self._holding:
            # An earlier program may have held commits back.
            self._merge(self._holding.pop(name))
        for _ in folder.place_all(placed, sequence):
            faults.point(PLACED)
        folder.sync(placed)
        folder.mark(sequence)
        faults.point(MARKED)
        folder.clean(sequence)

    def compact(self, target_bytes: int = TARGET_BYTES) -> Compaction:
        done = [self._merge(folder, target_bytes) for folder in list(self._holding.values())]
        return Compaction(sum(each.before for each in done), sum(each.after for each in done))

    def compacted_at(self) -> float | None:
        times = [HeldOutput(folder).merged_at() or 0.0 for folder in list(self._holding.values())]
        return min(times, default=None)

    def stop(self, job: str) -> None:
        super().stop(job)
        self.compact()
        self._holding.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_holding": {}}

    def _merge(self, folder: TargetFolder, target_bytes: int = TARGET_BYTES) -> Compaction:
        return HeldOutput(folder).merge(self.compression, target_bytes)

    def place(self) -> str:
        # The same text, whether a folder was given as a path or as a URL.
        return f"files in {str(Url(self.path)).removeprefix('file://')}"

    def newest(self, job: str, sink: str) -> int | None:
        folder = TargetFolder(place_at(self.path), job, sink)
        return max(folder.newest(), HeldOutput(folder).newest())

    def retract(self, job: str, sink: str, after: int, before: int) -> str | None:
        removed, sequences = TargetFolder(place_at(self.path), job, sink).retract(after, before)
        if not removed:
            return None
        files = "1 file" if removed == 1 else f"{removed:,} files"
        commits = f"commit {sequences[0]}" if len(sequences) == 1 else f"the commits {sequences[0]} to {sequences[-1]}"
        return f"{files} of {commits} in {Url(self.path)}"

    def published(self, job: str, sink: str) -> str | None:
        folder = TargetFolder(place_at(self.path), job, sink)
        count = len(folder.outputs())
        if not count and not folder.marker():
            return None
        return f"{count:,} {'file' if count == 1 else 'files'} in {self.path}"

    def remove(self, job: str, sink: str) -> None:
        folder = TargetFolder(place_at(self.path), job, sink)
        HeldOutput(folder).remove()
        folder.remove()

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        place = place_at(self.path)
        over = TargetFolder(place, over_stream(job), sink)
        over.mark(max(runs))
        # Without it, the output of ended runs would not count as complete.
        place.sync([over.own])
        faults.point(OVER)
        for stream in streams_of(job, runs):
            place.remove_folder(TargetFolder(place, stream, sink).own)


class _FilesPartition(SinkPartition):
    """A task's files: one, or one per folder and set of columns."""

    def __init__(self, sink: Files, staging: Staging) -> None:
        self._sink, self._staging = sink, staging
        self._folder = TargetFolder(place_at(sink.path), staging.job, staging.sink)
        self._task = staging.attempt.split("-")[-2]
        self._files = OutputFiles(sink.format, sink.compression, self._begin, self._finished)
        self._names: dict[CheckedFile, tuple[str, str]] = {}
        self._written: list[OutputFile] = []
        self._count = 0

    def write(self, columns: pa.RecordBatch) -> None:
        if not columns.num_rows:
            return
        # All of it is made ready before any of it is written: a write that fails has written nothing.
        for folder, rows in list(self._ready(columns)):
            with self._explained():
                self._files.write(folder, rows)

    def _ready(self, columns: pa.RecordBatch) -> Iterator[tuple[str, EncodedRows]]:
        parts: Iterable[tuple[str, pa.RecordBatch]] = [("", columns)]
        if wanted := self._sink.partition_by:
            check_partitions(columns.schema.names, wanted, f"sink {self._staging.sink!r}")
            parts = ((hive.folder_of(wanted, values), rows) for values, rows in hive.split(columns, wanted))
        for folder, rows in parts:
            try:
                yield folder, encoded(self._sink.format, typed(rows) if self._sink.format == "parquet" else rows)
            except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
                raise StepError(
                    f"sink {self._staging.sink!r}: the columns {', '.join(rows.schema.names)} cannot be written as "
                    f"{self._sink.format}: {error}"
                ) from error

    def _begin(self, folder: str, _: pa.Schema) -> CheckedFile:
        suffix = self._sink.format
        sequence = self._staging.sequence
        file, staged = self._folder.create_staged(sequence, self._staging.attempt, self._count, suffix)
        name = self._folder.name(sequence, self._task, self._count, suffix)
        self._names[file] = (staged, f"{folder}/{name}" if folder else name)
        self._count += 1
        return file

    def _finished(self, _: str, __: pa.Schema, writer: RowWriter) -> None:
        names = self._names.pop(writer.file)
        self._written.append(OutputFile(*names, writer.file.size, writer.file.checksum, writer.rows))
        faults.point(WRITTEN)

    def prepare(self) -> bytes | None:
        with self._explained():
            self._files.finish()
        if not self._written:
            return None
        self._folder.sync_staged()
        return msgspec.msgpack.encode(self._written)

    def _explained(self) -> AbstractContextManager[None]:
        return explained("write", self._folder.place.at(self._folder.staging))
