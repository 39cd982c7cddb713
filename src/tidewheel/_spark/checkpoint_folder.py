"""Spark's checkpoint folder: a cache, rebuilt from the manifest at every start.

Spark keeps the offsets of each batch, a mark for each committed one, and the logs of its sources. The manifest
records what of it belongs to the newest commit, by the names of the program's sources. So a start on another machine, after
the folder is lost or ahead of the manifest, or with other sources in another order, finds the folder as that commit left it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path

from tidewheel._checkpoint.manifest import SparkLog
from tidewheel._spark.source_lines import FILES, Continuation
from tidewheel.errors import ConfigError, CorruptError

_VERSION = "v1"
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
_NO_OFFSET = "-"
COMPACT_INTERVAL = 1000
"""After how many batches Spark writes the entries of all batches before into one file, `999.compact`, `1999.compact`, …

It takes as long as the job has seen many files, so it is done seldom.
"""
_TAIL_BYTES = 1 << 20


class SparkFolder:
    """Spark's checkpoint folder of one run."""

    def __init__(self, path: Path) -> None:
        """Take its path on the driver's disk."""
        self.path = path
        self._sources: Continuation
        self._read: dict[int, int] = {}
        """By log of a file source, the last entry that was captured."""

    def rebuild(self, log: SparkLog | None, seen: Iterable[str], sources: Continuation) -> None:
        """Make the folder what it was at the commit that recorded `log`, for the sources of today; without a log, empty.

        `seen` are the entries of the file sources; those of sources that are gone are passed over.
        """
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self._sources = sources
        self._read.clear()
        if log is None:
            return
        self._write("metadata", json.dumps({"id": log.query}))
        for batch, text in log.offsets.items():
            self._write(f"offsets/{batch}", moved(text, sources.positions))
        for batch, text in log.commits.items():
            self._write(f"commits/{batch}", text)
        folders = sources.folders()
        for place, text in log.files.items():
            number, _, name = place.partition("/")
            if int(number) in folders:
                self._write(f"sources/{folders[int(number)]}/{name}", text)
        newest = source_offsets(moved(log.offsets[max(log.offsets)], sources.positions))
        by_log: dict[int, list[str]] = {}
        for line in seen:
            number, _, entry = line.partition("\t")
            by_log.setdefault(int(number), []).append(entry)
        for each in by_log.keys() & folders.keys():
            offset = newest[sources.line_of(folders[each])]
            at = _log_offset(offset)
            if at is None:
                raise CorruptError(
                    f"log {each} has files that a source has seen, and the offset of that source is {offset!r}"
                )
            self._write_log(folders[each], at, by_log[each])
            self._read[each] = at

    def _write_log(self, folder: int, at: int, entries: Iterable[str]) -> None:
        """Write a file source's log as it would be at an offset: one compacted file, and one for each batch since."""
        compacted = (at + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
        older: list[str] = []
        since: dict[int, list[str]] = {batch: [] for batch in range(compacted + 1, at + 1)}
        for entry in entries:
            since.get(json.loads(entry)["batchId"], older).append(entry)
        if compacted >= 0:
            self._write(f"sources/{folder}/{compacted}.compact", "\n".join([_VERSION, *older]))
        for batch, lines in since.items():
            self._write(f"sources/{folder}/{batch}", "\n".join([_VERSION, *lines]))

    @property
    def logs(self) -> dict[str, int]:
        """The number of each source's log; of a source with several streams, that of its first."""
        return {source.name: source.log for source in reversed(self._sources.sources)}

    def newest(self) -> tuple[int, list[str | None]]:
        """Return the newest batch and the offset of each line at its end, None where there is none; -1 before the first."""
        batches = [int(file.name) for file in (self.path / "offsets").glob("[0-9]*")]
        if not batches:
            return -1, [None] * len(self._sources.lines)
        offsets = source_offsets(self.offsets(max(batches)))
        return max(batches), [None if text == _NO_OFFSET else text for text in offsets]

    def plan(self, batch: int, offsets: Sequence[str]) -> None:
        """Record the offsets at the end of a batch, one for each line, as Spark would before the batch runs."""
        if not (self.path / "metadata").exists():
            self._write("metadata", json.dumps({"id": str(uuid.uuid4())}))
        about = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 10**6, "conf": {}}
        self._write(f"offsets/{batch}", "\n".join([_VERSION, json.dumps(about), *offsets]))
        (self.path / "offsets" / str(batch - 2)).unlink(missing_ok=True)

    def offsets(self, batch: int) -> str:
        """Return the text of the offsets that Spark recorded for a batch."""
        return (self.path / "offsets" / str(batch)).read_text()

    def capture(self, batch: int, previous: SparkLog | None) -> tuple[SparkLog, list[str]]:
        """Return what has to be recorded to come back to the end of this batch, and the file sources' new entries."""
        offsets = {batch: self.offsets(batch)}
        commits = {batch: _COMMITTED}
        if batch > 0:
            offsets[batch - 1] = self.offsets(batch - 1)
            commits[batch - 1] = _COMMITTED
        query = previous.query if previous else json.loads((self.path / "metadata").read_text())["id"]
        fresh: list[str] = []
        files: dict[str, str] = {}
        ends = source_offsets(offsets[batch])
        for log, number in self._sources.folders().items():
            line = self._sources.line_of(number)
            folder = self.path / "sources" / str(number)
            if self._sources.lines[line].kind == FILES:
                at = _log_offset(ends[line])
                if at is not None:
                    fresh += [f"{log}\t{entry}" for entry in self._new_entries(log, folder, at)]
                    self._read[log] = at
            elif folder.is_dir():
                for file in folder.iterdir():
                    if file.name.isdigit():
                        files[f"{log}/{file.name}"] = file.read_text()
        return SparkLog(query, offsets, commits, files, (), self._sources.sources, self._sources.logs), fresh

    def _new_entries(self, log: int, folder: Path, at: int) -> Iterator[str]:
        """Yield what a file source saw after what was captured before, up to its offset."""
        for number in range(self._read.get(log, -1) + 1, at + 1):
            plain, compact = folder / str(number), folder / f"{number}.compact"
            if plain.exists():
                yield from _lines(plain.read_text())[1:]
            else:
                # It repeats all that came before it, and its own entries come last.
                yield from reversed(list(takewhile(partial(_is_of, number), _lines_from_the_end(compact))))

    def _write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def source_offsets(text: str) -> list[str]:
    """Return the lines of an offsets file, one for each place where a source is read; `-` where it has no offset yet."""
    version, _, *offsets = _lines(text)
    if version != _VERSION:
        raise ConfigError(
            f"Spark wrote its offsets in format {version}, and Tidewheel reads {_VERSION}; set "
            "spark.sql.streaming.offsetLog.formatVersion to 1 in the session"
        )
    return offsets


def planned_at(text: str) -> float:
    r"""Return when a batch was planned whose offsets file this is, in seconds since 1970.

    >>> planned_at('v1\n{"batchTimestampMs": 1500}\n7')
    1.5
    """
    return float(json.loads(_lines(text)[1])["batchTimestampMs"] / 1000)


def moved(text: str, positions: Sequence[int | None]) -> str:
    r"""Return the text of an offsets file whose lines come from these positions of the given one; None: no offset yet.

    >>> moved("v1\n{}\n7\n8", (1, None, 0)).splitlines()
    ['v1', '{}', '8', '-', '7']
    """
    offsets = source_offsets(text)
    lines = [_NO_OFFSET if position is None else offsets[position] for position in positions]
    return "\n".join([*_lines(text)[:2], *lines])


def _lines(text: str) -> list[str]:
    """Return lines as Spark takes them: a file's name may have signs in it that Python takes for the end of a line too."""
    return text.removesuffix("\n").split("\n")


def _is_of(batch: int, line: str) -> bool:
    return line.startswith("{") and json.loads(line)["batchId"] == batch


def _lines_from_the_end(file: Path) -> Iterator[str]:
    """Yield the lines of a file, the last one first, and read only as much of it as is asked for."""
    with file.open("rb") as stream:
        start, rest = stream.seek(0, os.SEEK_END), b""
        while start > 0:
            end, start = start, max(0, start - _TAIL_BYTES)
            stream.seek(start)
            rest, *lines = (stream.read(end - start) + rest).split(b"\n")
            yield from (line.decode() for line in reversed(lines) if line)
        yield rest.decode()


def _log_offset(text: str) -> int | None:
    """Return the number that a file source's offset is, None if the source has none yet."""
    if text == _NO_OFFSET:
        return None
    value = json.loads(text)
    return value.get("logOffset") if isinstance(value, dict) else None
