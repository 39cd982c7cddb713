"""Data files of a table: tasks write them where they belong, and the driver commits only their names.

A table's log decides which files belong to the table, so a file that no commit of the table names is invisible wherever
it is. A task writes Parquet files into the folder of the table, under names that no other attempt has, and its token
describes them: path, size, rows, columns, partition, statistics. Publishing adds these descriptions to the log of the
table in one commit. What a failed attempt left is never named by a commit; `gc` deletes it.

Anyone who can write to the state store could change a token. So a token can only name files of its own sink and sequence.
"""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa
from xxhash import xxh64_hexdigest

from tidewheel._connectors.files import hive
from tidewheel._connectors.files.formats import CheckedFile, EncodedRows, ParquetWriter, RowWriter
from tidewheel._connectors.files.output_files import OutputFiles
from tidewheel._connectors.files.places import Place, explained
from tidewheel._connectors.files.sorting import RowOrder
from tidewheel._connectors.other_state import job_of
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._core import faults
from tidewheel.errors import CorruptError, StorageError

WRITTEN = faults.declare(
    "table.written", "a task's data file is durable in the folder of its table, no report names it"
)

FILE_BYTES = 128 << 20
"""The size at which a task begins another file."""

_CHECKERS = 8

Partition = tuple[str | None, ...]
"""The values of the partition columns, as texts."""


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that a task has written into the folder of a table."""

    path: str
    """Its path below the folder."""
    size: int
    rows: int
    columns: int
    """Which of the schemas of the token its rows have."""
    partition: Partition
    statistics: bytes
    """The statistics of its columns, as the log of the table stores them."""
    order: tuple[str, ...] = ()
    """The fields of the order of its rows."""


class TaskFiles(msgspec.Struct, frozen=True):
    """The token of a task: its files, and the distinct schemas of their rows, with the partition columns."""

    partition_by: tuple[str, ...]
    schemas: tuple[bytes, ...]
    files: tuple[DataFile, ...]

    def arrow_schemas(self) -> list[pa.Schema]:
        """Return the schemas of the rows."""
        return [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in self.schemas]


class DataFilesPartition(SinkPartition):
    """Write the rows of a task to data files: one, or one for each partition and set of columns."""

    def __init__(
        self,
        staging: Staging,
        place: Place,
        folder: str,
        partition_by: Collection[str],
        *,
        file_bytes: float = FILE_BYTES,
        order: RowOrder | None = None,
    ) -> None:
        self.staging = staging
        self._place, self._folder, self._partition_by = place, folder, tuple(partition_by)
        self._files = OutputFiles("parquet", "snappy", self._begin, self._finished, file_bytes=file_bytes, order=order)
        self._order = () if order is None else order.fields
        self._paths: dict[CheckedFile, str] = {}
        self._schemas: dict[pa.Schema, int] = {}
        self._written: list[DataFile] = []

    @abstractmethod
    def statistics(self, metadata: object) -> bytes:
        """Return the statistics of a closed file, given its `parquet.FileMetaData`."""

    def add(self, columns: pa.RecordBatch) -> None:
        """Write rows that fit the table."""
        number = self._schemas.setdefault(columns.schema, len(self._schemas))
        with self._explained():
            for partition, rows in self.parts(columns):
                self._files.write((number, partition), EncodedRows(rows))

    def parts(self, columns: pa.RecordBatch) -> Iterable[tuple[Partition, pa.RecordBatch]]:
        """Divide rows by partition. Files do not contain the partition columns, unless a subclass keeps them."""
        if not self._partition_by:
            return [((), columns)]
        found = hive.split(columns, self._partition_by)
        return ((tuple(map(hive.text_of, values)), rows) for values, rows in found)

    def prepare(self) -> bytes | None:
        with self._explained():
            self._files.finish()
        if not self._written:
            return None
        self._place.sync([self._folder])
        schemas = tuple(schema.serialize().to_pybytes() for schema in self._schemas)
        return msgspec.msgpack.encode(TaskFiles(self._partition_by, schemas, tuple(self._written)))

    def _begin(self, _: tuple[int, Partition], __: pa.Schema) -> CheckedFile:
        number = len(self._written) + len(self._paths)
        name = f"{_prefix(self.staging.job, self.staging.sink, self.staging.sequence)}{self.staging.attempt}-{number}"
        path = f"{self._folder}/{name}.parquet" if self._folder else f"{name}.parquet"
        file = self._place.begin(path)
        self._paths[file] = path
        return file

    def _finished(self, group: tuple[int, Partition], _: pa.Schema, writer: RowWriter) -> None:
        assert isinstance(writer, ParquetWriter)
        columns, partition = group
        path, statistics = self._paths.pop(writer.file), self.statistics(writer.metadata)
        self._written.append(DataFile(path, writer.file.size, writer.rows, columns, partition, statistics, self._order))
        faults.point(WRITTEN)

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explained("write", self._place.at(self._folder))


def checked(files: TaskFiles, publication: Publication, folder: str = "") -> TaskFiles:
    """Return the files of a token, or refuse a token that names other files than its sink writes for this sequence."""
    prefix = f"{folder}/" if folder else ""
    own = re.compile(re.escape(prefix + _prefix(publication.job, publication.sink, publication.sequence)) + r"[^/\0]+")
    for file in files.files:
        if not own.fullmatch(file.path) or file.columns not in range(len(files.schemas)):
            raise CorruptError(
                f"sink {publication.sink!r}: a token of the commit {publication.sequence} names {file.path!r}, which is "
                "not a file of this commit; another program has written to the state store. Nothing was published: "
                "restore the job to an earlier checkpoint"
            )
    return files


def check_present(files: Iterable[DataFile], place: Place, sink: str) -> None:
    """Raise an error if files are gone: another program may have cleaned the table while the job was stopped."""
    with ThreadPoolExecutor(_CHECKERS) as checkers:
        paths = [file.path for file in files]
        gone = [path for path, there in zip(paths, checkers.map(place.has, paths), strict=True) if not there]
    if gone:
        raise StorageError(
            f"sink {sink!r}: committed output is lost: {place.at(gone[0])} is gone. A program that removes unreferenced "
            "files of the table has deleted it before it was published. Restore the file from a backup, or continue "
            f"without this output with --drop-unpublished {sink}"
        )


def is_output(path: str, job: str, sink: str, unpublished: Collection[int] = ()) -> bool:
    """Return whether a path is that of a data file of a job and sink, or of a run of the job's fleet.

    The answer is no for files of the sequences `unpublished`.
    """
    own = re.fullmatch(rf"(?:.*/)?{_own(job, sink)}(\d{{20}})-[^/]+", path)
    return own is not None and int(own[1]) not in unpublished


def _own(job: str, sink: str) -> str:
    # Names of jobs may have any characters, and clients of tables disagree about which of them a path must escape.
    return f"tidewheel-{xxh64_hexdigest(f'{job_of(job)}~{sink}'.encode())}-"


def _prefix(job: str, sink: str, sequence: int) -> str:
    return f"{_own(job, sink)}{sequence:020}-"
