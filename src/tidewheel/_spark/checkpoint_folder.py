"""The checkpoint folder of the streaming query that reads a user's DataFrame: a cache, rebuilt from the source's position.

In this folder Spark keeps the offsets of each batch, a mark for each committed batch, and the logs of its sources. The position
of the source holds the same facts for the newest commit. A run rebuilds the folder from the position: so it continues exactly
there, also on another machine, and also if the folder was lost or was ahead of the commit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from tidewheel._checkpoint.manifest import SeenFile
from tidewheel._checkpoint.spark_log import NO_OFFSET
from tidewheel._connectors.spark.frame_position import FramePosition
from tidewheel.errors import ConfigError, CorruptError, StateError

FILES = "files"
"""The kind of Spark's file sources, which log the files that they have seen."""
COMPACT_INTERVAL = 1000
"""After how many batches Spark writes the entries of all batches before into one file, `999.compact`, `1999.compact`, …

It takes longer the more files the job has seen, so it is done seldom.
"""
_VERSION = "v1"
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
_SPARK_FILES = re.compile(r"FileSource\[.*\]", re.DOTALL)


class Stream(NamedTuple):
    """A place where a DataFrame reads a stream: a line of Spark's offsets."""

    kind: str
    folder: int
    """The number of its folder under `sources`. A stream that is read in two places has one."""


def streams_of(frame: DataFrame) -> tuple[Stream, ...]:
    """Return the streams that a DataFrame reads, in the order of Spark's offsets."""
    if not hasattr(frame, "_jdf"):
        raise ConfigError(
            "a streaming DataFrame is read by a streaming query, which needs a session of this process; over Spark Connect use "
            "one of tidewheel's own sources"
        )
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    relations = [leaves.apply(number) for number in range(leaves.size())]
    distinct: list[Any] = []
    streams = []
    for leaf in relations:
        if not leaf.getClass().getSimpleName().startswith("StreamingRelation"):
            continue
        folder = next((number for number, other in enumerate(distinct) if other.equals(leaf)), len(distinct))
        if folder == len(distinct):
            distinct.append(leaf)
        name = leaf.sourceName()
        kind = FILES if _SPARK_FILES.fullmatch(name) else name.removeprefix("tidewheel-")
        streams.append(Stream(kind, folder))
    return tuple(streams)


class CheckpointFolder:
    """The checkpoint folder of one streaming query."""

    def __init__(self, path: Path, source: str, streams: Sequence[Stream]) -> None:
        """Take its path on the driver's disk, the source, and the streams that the query reads."""
        self.path, self._source, self._streams = path, source, streams
        self._read: dict[int, int] = {}
        """By folder of a file source, the last entry that was captured."""

    def rebuild(self, position: FramePosition | None, seen: Iterable[SeenFile]) -> None:
        """Restore the folder as of a position; None: empty. `seen` are the files that the source has seen."""
        self.remove()
        self.path.mkdir(parents=True)
        self._read.clear()
        if position is None:
            return
        kinds = [stream.kind for stream in self._streams]
        if position.kinds != kinds:
            raise StateError(
                f"source {self._source!r} read {_described(position.kinds)} and now reads {_described(kinds)}: the positions of "
                "one mean nothing to the other"
            )
        self._write("metadata", json.dumps({"id": position.query}))
        texts = {position.batch: position.offsets}
        if position.batch > 0:
            texts[position.batch - 1] = position.before
        for batch, text in texts.items():
            self._write(f"offsets/{batch}", text)
            self._write(f"commits/{batch}", _COMMITTED)
        for place, text in position.files.items():
            self._write(f"sources/{place}", text)
        by_folder: dict[int, list[SeenFile]] = {}
        for file in seen:
            by_folder.setdefault(int(file.path.partition(":")[0]), []).append(file)
        for folder, files in by_folder.items():
            at = self._log_offset(folder, position.offsets)
            if at is None:
                raise CorruptError(f"source {self._source!r} has seen files, and no offset of Spark says up to where")
            self._write_log(folder, at, files)
            self._read[folder] = at

    def _write_log(self, folder: int, at: int, files: Iterable[SeenFile]) -> None:
        """Write a file source's log as it would be at an offset: one compacted file, and one for each batch since."""
        compacted = (at + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
        older: list[str] = []
        since: dict[int, list[str]] = {batch: [] for batch in range(compacted + 1, at + 1)}
        for file in files:
            entry = {"path": file.path.partition(":")[2], "timestamp": file.modified_ms, "batchId": file.number}
            since.get(file.number, older).append(json.dumps(entry, ensure_ascii=False, separators=(",", ":")))
        if compacted >= 0:
            self._write(f"sources/{folder}/{compacted}.compact", "\n".join([_VERSION, *older]))
        for batch, lines in since.items():
            self._write(f"sources/{folder}/{batch}", "\n".join([_VERSION, *lines]))

    def captured(self, batch: int) -> FramePosition:
        """Return the position at the end of a batch that Spark has planned."""
        offsets = self._offsets(batch)
        files = {}
        for folder in {stream.folder for stream in self._streams if stream.kind != FILES}:
            for file in (self.path / "sources" / str(folder)).glob("[0-9]*"):
                if file.name.isdigit():
                    files[f"{folder}/{file.name}"] = file.read_text()
        query = json.loads((self.path / "metadata").read_text())["id"]
        before = self._offsets(batch - 1) if batch > 0 else ""
        return FramePosition(query, batch, [stream.kind for stream in self._streams], before, offsets, files)

    def seen(self, position: FramePosition) -> list[SeenFile]:
        """Return the files that Spark has seen since the last call, up to a position."""
        found = []
        for folder in sorted({stream.folder for stream in self._streams if stream.kind == FILES}):
            at = self._log_offset(folder, position.offsets)
            if at is None:
                continue
            for entry in self._new_entries(folder, at):
                path, batch = f"{folder}:{entry['path']}", int(entry["batchId"])
                found.append(SeenFile(self._source, path, batch, int(entry["timestamp"]), 0))
            self._read[folder] = at
        return found

    def _log_offset(self, folder: int, offsets: str) -> int | None:
        """Return the offset of a file source, None if it has none yet."""
        line = next(number for number, stream in enumerate(self._streams) if stream.folder == folder)
        text = offset_lines(offsets)[line]
        value = None if text == NO_OFFSET else json.loads(text)
        return value.get("logOffset") if isinstance(value, dict) else None

    def _new_entries(self, folder: int, at: int) -> Iterator[dict[str, Any]]:
        """Yield the entries of a file source after the last captured one, up to its offset."""
        place = self.path / "sources" / str(folder)
        for number in range(self._read.get(folder, -1) + 1, at + 1):
            plain = place / str(number)
            # A compacted file repeats all entries before its own.
            file = plain if plain.exists() else place / f"{number}.compact"
            entries = (json.loads(line) for line in _lines(file.read_text())[1:])
            yield from (entry for entry in entries if entry["batchId"] == number)

    def _offsets(self, batch: int) -> str:
        return (self.path / "offsets" / str(batch)).read_text()

    def _write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def offset_lines(text: str) -> list[str]:
    """Return the lines of an offsets file, one for each stream; `-` where it has no offset yet."""
    version, _, *offsets = _lines(text)
    if version != _VERSION:
        raise ConfigError(
            f"Spark wrote its offsets in format {version}, and Tidewheel reads {_VERSION}; set "
            "spark.sql.streaming.offsetLog.formatVersion to 1 in the session"
        )
    return offsets


def _described(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} streams ({', '.join(kinds)})"


def _lines(text: str) -> list[str]:
    """Divide lines as Spark does: a file's name may contain characters that end a line for Python only."""
    return text.removesuffix("\n").split("\n")
