"""Arrow files, also called Feather, as tasks read them: the file format, and a stream in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import ipc

from tidewheel._connectors.files.arrow_types import spark_type
from tidewheel._connectors.files.columnar_split import ColumnarSplit
from tidewheel._connectors.files.fitting import Fitting
from tidewheel._connectors.files.input_file import InputFile
from tidewheel.errors import StepError

_FILE, _STREAM = b"ARROW1", b"\xff\xff\xff\xff"
"""The first bytes of a file of each of the two formats."""
_END_BYTES = 8
"""The length of the end mark of a stream: the start mark of a message, and the length 0."""


@dataclass(frozen=True)
class ArrowSplit(ColumnarSplit):
    """Record batches of an Arrow file. A stream can only be read from its beginning: it is one unit."""

    def _batches(self) -> Iterator[tuple[Fitting, pa.RecordBatch]]:
        with self.file.opened("an Arrow file") as file:
            fitting = Fitting(self.file.shown, _schema(self.file.shown, file), self.columns)
            present = fitting.present.names
            options = ipc.IpcReadOptions(included_fields=[present.index(name) for name in fitting.wanted(self.only)])
            file.seek(0)
            for batch in self._read_units(file, options):
                batch.validate(full=True)  # Arrow does not check offsets and text when it reads them.
                yield fitting, batch

    def _read_units(self, file: pa.NativeFile, options: ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
        if _is_stream(file):
            yield from _streamed(self.file, file, options)
            return
        reader = ipc.open_file(file, options=options)
        for number in range(*(self.units or (0, reader.num_record_batches))):
            yield reader.get_batch(number)

    @classmethod
    def count(cls, file: InputFile) -> int:
        with file.opened("an Arrow file") as opened:
            return 1 if _is_stream(opened) else int(ipc.open_file(opened).num_record_batches)

    @classmethod
    def schema_of(cls, file: InputFile) -> pa.Schema:
        with file.opened("an Arrow file") as opened:
            return pa.schema([(field.name, spark_type(field.type)) for field in _schema(file.shown, opened)])


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
        raise StepError(
            f"{path} cannot be read as an Arrow file: it has neither the file format nor the stream format of Arrow 0.15 or "
            "newer. Arrow compresses inside of a file, never the whole file"
        )
    file.seek(0)
    return ipc.open_stream(file).schema


def _streamed(listed: InputFile, file: pa.NativeFile, options: ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream. Refuse a stream without its end mark, which Arrow accepts, and bytes after the end mark."""
    reader = ipc.open_stream(file, options=options)
    read_to = file.tell()
    for batch in reader:
        read_to = file.tell()
        yield batch
    if file.tell() != read_to + _END_BYTES:
        raise StepError(
            f"{listed.shown} is cut off: the mark at the end of an Arrow stream is not there. Close its writer"
        )
    if file.tell() != listed.size:
        raise StepError(f"{listed.shown} has more behind the end of its Arrow stream; write one stream a file")
