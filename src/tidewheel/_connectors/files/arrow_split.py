"""Arrow files, also called Feather, as tasks read them: the file format, and a stream in a file.

Spark has no reader for them. So a file that does not fit is an error that names it, and nothing is left to Spark.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from tidewheel._connectors.direct import ReadBySpark
from tidewheel._connectors.files.arrow_types import fits, spark_type
from tidewheel._connectors.files.columnar_split import ROWS, ColumnarSplit, read_errors
from tidewheel._connectors.files.fitting import Fitting
from tidewheel._connectors.split import Split
from tidewheel.errors import TidewheelError

_FILE, _STREAM = b"ARROW1", b"\xff\xff\xff\xff"
"""How a file of each of the two formats begins."""
_END_BYTES = 8
"""What a stream ends with: the sign that a message begins, and that it has no bytes."""
_PARTS_PER_TASK = 4


@dataclass(frozen=True)
class ArrowSplit(ColumnarSplit):
    """Some of the record batches of an Arrow file, from one number up to another; None: all of it."""

    batches: tuple[int, int] | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        with _opened(self.path) as file:
            fitting = self._fitting(_schema(self.path, file)).of(self.only)
            present = fitting.present.names
            options = ipc.IpcReadOptions(included_fields=[present.index(name) for name in fitting.wanted])
            file.seek(0)
            for batch in self._batches(file, options):
                batch.validate(full=True)  # Arrow takes offsets and text as they are, and follows them anywhere.
                for start in range(0, batch.num_rows, ROWS):
                    yield _fitted(fitting, batch.slice(start, ROWS))

    def _batches(self, file: pa.NativeFile, options: ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
        if _is_stream(file):
            yield from _streamed(self.path, file, options)
            return
        reader = ipc.open_file(file, options=options)
        first, end = self.batches or (0, reader.num_record_batches)
        for number in range(first, end):
            yield reader.get_batch(number)

    def _fitting(self, present: pa.Schema) -> Fitting:
        try:
            fitting = Fitting(self.path, present, self.columns)
        except ReadBySpark as error:
            raise TidewheelError(f"{error}; give them other names") from error
        for name, field in zip(fitting.names, self.columns, strict=True):
            if name is not None and not fits(present.field(name).type, field.type):
                raise TidewheelError(
                    f"{self.path} has {present.field(name).type} in the column {name!r}, and the source has {field.type}; "
                    "write the file with the types of the source, or change the source's schema"
                )
        return fitting


def in_parts(path: str, size: int, columns: pa.Schema, tasks: int) -> list[Split]:
    """Return splits of a large file, enough for this many tasks. A stream can only be read from its beginning: it is one."""
    with _opened(path) as file:
        number = 1 if _is_stream(file) else ipc.open_file(file).num_record_batches
    parts = min(number, tasks * _PARTS_PER_TASK)
    if parts < 2:
        return [ArrowSplit(path, size, columns)]
    edges = [number * part // parts for part in range(parts + 1)]
    return [ArrowSplit(path, size // parts, columns, part) for part in itertools.pairwise(edges)]


def arrow_columns(path: str) -> pa.Schema:
    """Return the columns of a file, in types that Spark has."""
    with _opened(path) as file:
        return pa.schema([(field.name, spark_type(field.type)) for field in _schema(path, file)])


@contextmanager
def _opened(path: str) -> Iterator[pa.NativeFile]:
    """Open a file. It is not mapped into memory: a process that reads a part which was cut off meanwhile would be killed."""
    with read_errors(path, "an Arrow file"), pa.OSFile(path) as file:
        yield file


def _is_stream(file: pa.NativeFile) -> bool:
    file.seek(0)
    begins = file.read(len(_FILE))
    file.seek(0)
    return bool(begins != _FILE)


def _schema(path: str, file: pa.NativeFile) -> pa.Schema:
    if not _is_stream(file):
        return ipc.open_file(file).schema
    begins = file.read(len(_STREAM))
    if begins != _STREAM:
        raise TidewheelError(
            f"{path} cannot be read as an Arrow file: it has neither the file format nor the stream format of Arrow 0.15 or "
            "newer. Arrow compresses inside of a file, never the whole file"
        )
    file.seek(0)
    return ipc.open_stream(file).schema


def _streamed(path: str, file: pa.NativeFile, options: ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream; refuse one without an end, which Arrow takes for whole, and what is behind the end."""
    reader = ipc.open_stream(file, options=options)
    read_to = file.tell()
    for batch in reader:
        read_to = file.tell()
        yield batch
    if file.tell() != read_to + _END_BYTES:
        raise TidewheelError(
            f"{path} is cut off: the mark at the end of an Arrow stream is not there. Close its writer"
        )
    if file.tell() != os.path.getsize(path):
        raise TidewheelError(f"{path} has more behind the end of its Arrow stream; write one stream a file")


def _fitted(fitting: Fitting, batch: pa.RecordBatch) -> pa.RecordBatch:
    plain = pa.RecordBatch.from_arrays([_plain(column) for column in batch.columns], names=batch.schema.names)
    try:
        return fitting.fitted(plain)
    except ReadBySpark as error:
        raise TidewheelError(str(error)) from error


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    if isinstance(column, pa.RunEndEncodedArray):
        return pc.run_end_decode(column)
    return column
