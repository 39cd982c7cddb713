"""Merge small files of a files sink before readers see them: commits are held back and published together.

A reader of a plain folder lists the folder and opens the listed files, and neither a file system nor a store can replace
several files in one step. So published files are never replaced. Instead, publishing a commit only notes its staged files:

    <path>/_tidewheel/<job>~<sink>/held-<sequence>     the staged files of a commit, and their final paths
    <path>/_tidewheel/<job>~<sink>/merging/            merged files that are not published yet
    <path>/_tidewheel/<job>~<sink>/merged-<number>     a merge: its last sequence, its files and their final paths

A merge writes larger files, creates its record if absent, moves the files to their final paths, raises the marker, and
removes the held files. Only one of two merging drivers can create the record. After a crash, the next run finishes the merge.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from tidewheel._connectors.files.compaction import Compaction
from tidewheel._connectors.files.formats import CheckedFile, EncodedRows, Format, RowWriter
from tidewheel._connectors.files.output_files import OutputFiles
from tidewheel._connectors.files.places import explained
from tidewheel._connectors.files.target_folder import OutputFile, TargetFolder
from tidewheel._connectors.other_state import other_state
from tidewheel._core import faults
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError, NotFound, StateError

MERGED = faults.declare("held.merged", "a files sink has noted a merge of held files, which are not in place")

_HELD = re.compile(r"held-(\d{20})")
_MERGED = re.compile(r"merged-(\d{20})")
_CHUNK = 16 << 20


class _Move(msgspec.Struct, frozen=True, array_like=True):
    """A file that a merge publishes, by its path below the sink's own folder, and where it belongs."""

    source: str
    final: str
    size: int


class _Merge(msgspec.Struct, frozen=True):
    """The record of a merge."""

    up_to: int
    at: float
    files: tuple[_Move, ...] = ()


class HeldOutput:
    """The held commits of one sink."""

    def __init__(self, folder: TargetFolder) -> None:
        self._folder, self._place, self._own = folder, folder.place, folder.own

    def newest(self) -> int:
        """Return the newest held sequence; 0 if there is none."""
        return max(self._held(), default=0)

    def hold(self, files: list[OutputFile], sequence: int) -> None:
        """Note the staged files of a commit durably."""
        path = f"{self._own}/held-{sequence:020}"
        held = self._held()
        older = sequence not in held and sequence < max(held, default=0)
        if older or not self._place.store.create(path, msgspec.json.encode(files)):
            raise StateError(
                f"{self._place.at(path)} has output of another commit than {sequence}: {other_state(self._folder.stream)}"
            )

    def merged_at(self) -> float | None:
        """Return when held files were last merged, in seconds since 1970."""
        newest = self._newest_merge()
        return None if newest is None else newest[1].at

    def format(self) -> str | None:
        """Return the format of the held files; None if there are none."""
        held = sorted(self._held().items())
        return next((_format(file) for sequence, path in held for file in self._files(path, sequence)), None)

    def merge(self, compression: str, target_bytes: int) -> Compaction:
        """Publish everything that is held, in files of about the target size."""
        number, last = self._newest_merge() or (0, None)
        if last is not None:
            self._finish(last)
        published = self._folder.marker()
        held = {sequence: path for sequence, path in self._held().items() if sequence > published}
        if not held:
            return Compaction(0, 0)
        up_to = max(held)
        sources: dict[str, list[OutputFile]] = defaultdict(list)
        for sequence in sorted(held):
            for file in self._files(held[sequence], sequence):
                sources[file.final.rpartition("/")[0]].append(file)
        self._check_staged([file for some in sources.values() for file in some])
        files: list[_Move] = []
        for folder, some in sources.items():
            form = _format(some[0])
            for move in self._written(some, form, compression, target_bytes):
                name = self._folder.name(up_to, f"merged{number + 1}", len(files), form)
                final = f"{folder}/{name}" if folder else name
                files.append(_Move(move.source, final, move.size))
        record = _Merge(up_to, time.time(), tuple(files))
        ours = self._place.store.create(f"{self._own}/merged-{number + 1:020}", msgspec.json.encode(record))
        newest = self._newest_merge()
        if not ours or newest is None or newest[0] != number + 1:
            # Another driver has merged meanwhile, and perhaps removed the record of that number again.
            return Compaction(0, 0)
        faults.point(MERGED)
        self._finish(record)
        self._clean(number + 1, record)
        return Compaction(sum(map(len, sources.values())), len(files))

    def remove(self) -> None:
        """Remove everything that is held, and the records."""
        for _, path in (*self._folder.numbered(self._own, _HELD), *self._folder.numbered(self._own, _MERGED)):
            self._place.remove(path)
        self._place.remove_folder(f"{self._own}/merging")

    def _held(self) -> dict[int, str]:
        return dict(self._folder.numbered(self._own, _HELD))

    def _files(self, path: str, sequence: int) -> list[OutputFile]:
        try:
            files = msgspec.json.decode(self._place.store.read(path), type=list[OutputFile])
        except UNDECODABLE as error:
            raise self._invalid(path, error) from None
        return [self._folder.checked(file, sequence) for file in files]

    def _newest_merge(self) -> tuple[int, _Merge] | None:
        number, path = max(self._folder.numbered(self._own, _MERGED), default=(0, ""))
        if not path:
            return None
        try:
            merge = msgspec.json.decode(self._place.store.read(path), type=_Merge)
        except NotFound:
            # Another driver has removed the record after a newer one.
            return self._newest_merge()
        except UNDECODABLE as error:
            raise self._invalid(path, error) from None
        for file in merge.files:
            own = file.final.rpartition("/")[2].startswith(f"{self._folder.prefix}~{merge.up_to:020}~")
            if not own or ".." in file.source or not file.source.startswith(("staged/", "merging/")):
                raise self._invalid(path, f"it moves {file.source!r} to {file.final!r}")
        return number, merge

    def _invalid(self, path: str, error: object) -> CorruptError:
        return CorruptError(
            f"{self._place.at(path)} is not what the sink wrote ({error}); another program has written to the folder. Nothing "
            "was published: restore the file from a backup"
        )

    def _check_staged(self, files: list[OutputFile]) -> None:
        staged = self._place.sizes(self._folder.staging)
        for file in files:
            size, path = staged.get(file.staged), f"{self._folder.staging}/{file.staged}"
            if size is None:
                raise self._folder.lost(file.final, path)
            if size != file.size:
                raise CorruptError(
                    f"{self._place.at(path)} is not what the task wrote: {file.size} bytes were staged, {size} are there. It was "
                    "not published; put the right file back and start again"
                )

    def _written(self, files: list[OutputFile], form: Format, compression: str, target_bytes: int) -> Iterator[_Move]:
        """Write the rows of files to larger files. A single file stays unchanged."""
        staged = [f"{self._folder.staging}/{file.staged}" for file in files]
        if len(files) == 1:
            yield _Move(self._below(staged[0]), "", files[0].size)
            return
        written: list[_Move] = []
        paths: dict[CheckedFile, str] = {}

        def begin(_: None, __: pa.Schema) -> CheckedFile:
            path = f"{self._own}/merging/{secrets.token_hex(8)}.{form}"
            file = self._place.begin(path)
            paths[file] = path
            return file

        def finished(_: None, __: pa.Schema, writer: RowWriter) -> None:
            written.append(_Move(self._below(paths[writer.file]), "", writer.file.size))

        output = OutputFiles[None](form, compression, begin, finished, file_bytes=target_bytes)
        with explained("merge", self._place.at(self._folder.staging)):
            for path, file in zip(staged, files, strict=True):
                for rows in self._rows(path, file, form):
                    output.write(None, rows)
            output.finish()
        self._place.sync([f"{self._own}/merging"])
        yield from written

    def _rows(self, path: str, file: OutputFile, form: Format) -> Iterator[EncodedRows]:
        from pyarrow import parquet

        with self._place.read(path, file.size) as content:
            if form == "parquet":
                for batch in parquet.ParquetFile(content).iter_batches():
                    yield EncodedRows(batch)
                return
            rest = b""
            while chunk := content.read(_CHUNK):
                lines, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    yield EncodedRows(_NO_COLUMNS, lines + newline)

    def _finish(self, merge: _Merge) -> None:
        """Publish the files of a merge, unless that was done."""
        if self._folder.marker() < merge.up_to:
            for file in merge.files:
                try:
                    self._place.move(f"{self._own}/{file.source}", file.final)
                except NotFound as error:
                    if not self._place.has(file.final) and self._folder.marker() < merge.up_to:
                        raise self._folder.lost(file.final, f"{self._own}/{file.source}") from error
            self._place.sync({file.final.rpartition("/")[0] for file in merge.files})
            # Before the marker: a staged file of a published sequence would be taken for one of another life of the job.
            self._folder.clean(merge.up_to)
            self._folder.mark(merge.up_to)
        for sequence, path in self._held().items():
            if sequence <= merge.up_to:
                self._place.remove(path)

    def _clean(self, number: int, merge: _Merge) -> None:
        """Remove the files of other drivers for a merge of this number, and the records of earlier merges."""
        named = {file.source for file in merge.files}
        for name in self._place.sizes(f"{self._own}/merging"):
            if f"merging/{name}" not in named:
                self._place.remove(f"{self._own}/merging/{name}")
        for other, path in self._folder.numbered(self._own, _MERGED):
            if other < number:
                self._place.remove(path)

    def _below(self, path: str) -> str:
        return path.removeprefix(f"{self._own}/")


def _format(file: OutputFile) -> Format:
    return "json" if file.final.endswith(".json") else "parquet"


_NO_COLUMNS = pa.record_batch([], names=[])
