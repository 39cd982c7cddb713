"""Spark's checkpoint folder: a cache, rebuilt from the manifest at every start.

Spark keeps the offsets of each batch, a mark for each committed one, and the logs of its sources. The manifest
records what of it belongs to the newest commit, so a start on another machine, or after the folder is lost or ahead of the
manifest, finds the folder exactly as that commit left it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from tidewheel._checkpoint.manifest import SparkLog
from tidewheel.errors import StateError

_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'


class SparkFolder:
    """Spark's checkpoint folder of one run."""

    def __init__(self, path: Path) -> None:
        """Take its path on the driver's disk."""
        self.path = path
        self._read: dict[int, int] = {}

    def rebuild(self, log: SparkLog | None, seen: Iterable[str], sources: int) -> None:
        """Make the folder what it was at the commit that recorded `log`; without one, empty.

        `sources` is how many the query has now. The ticks are the last one, where there are any: a run with them may follow
        one without, and the other way about.
        """
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self._read.clear()
        if log is None:
            return
        self._write("metadata", json.dumps({"id": log.query}))
        for batch, text in log.offsets.items():
            self._write(f"offsets/{batch}", with_sources(text, sources))
        for batch, text in log.commits.items():
            self._write(f"commits/{batch}", text)
        for name, text in log.files.items():
            self._write(name, text)
        newest = source_offsets(log.offsets[max(log.offsets)])
        by_source: dict[int, list[str]] = {}
        for line in seen:
            source, _, entry = line.partition("\t")
            by_source.setdefault(int(source), []).append(entry)
        for number, entries in by_source.items():
            at = _log_offset(newest[number])
            if at is None:
                raise StateError(f"source {number} was a file source and its offset now reads {newest[number]!r}")
            # A lone .compact file makes Spark derive a compaction interval that fits its number.
            self._write(f"sources/{number}/{at}.compact", "\n".join(["v1", *entries]))
            self._read[number] = at

    def offsets(self, batch: int) -> str:
        """Return the text of the offsets that Spark recorded for a batch."""
        return (self.path / "offsets" / str(batch)).read_text()

    def capture(self, batch: int, previous: SparkLog | None) -> tuple[SparkLog, list[str]]:
        """Return what has to be recorded to come back to the end of this batch, and the file sources' new lines."""
        offsets = {batch: self.offsets(batch)}
        commits = {batch: _COMMITTED}
        if batch > 0:
            offsets[batch - 1] = self.offsets(batch - 1)
            commits[batch - 1] = _COMMITTED
        query = previous.query if previous else json.loads((self.path / "metadata").read_text())["id"]
        fresh: list[str] = []
        files: dict[str, str] = {}
        for number, text in enumerate(source_offsets(offsets[batch])):
            folder = self.path / "sources" / str(number)
            at = _log_offset(text)
            if at is not None and _is_file_log(folder):
                fresh += [f"{number}\t{line}" for line in self._new_lines(number, folder, at)]
                self._read[number] = at
            elif folder.is_dir():
                for file in folder.iterdir():
                    if file.name.isdigit():
                        files[f"sources/{number}/{file.name}"] = file.read_text()
        return SparkLog(query, offsets, commits, files), fresh

    def _new_lines(self, number: int, folder: Path, at: int) -> Iterator[str]:
        """Yield what a file source saw after what was read before, up to its offset."""
        for entry in range(self._read.get(number, -1) + 1, at + 1):
            plain, compact = folder / str(entry), folder / f"{entry}.compact"
            text = (plain if plain.exists() else compact).read_text()
            for line in _lines(text)[1:]:
                # A compact file repeats all that came before it.
                if json.loads(line)["batchId"] == entry:
                    yield line

    def _write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def source_offsets(text: str) -> list[str]:
    """Return the offset of each source in the text of an offsets file; `-` where a source has none yet."""
    return _lines(text)[2:]


def with_sources(text: str, sources: int) -> str:
    r"""Return the text of an offsets file for this many sources: those it lacks have no offset yet, the last are left out.

    >>> with_sources("v1\n{}\n7", 2).splitlines()
    ['v1', '{}', '7', '-']
    """
    lines = _lines(text)
    kept = lines[: 2 + sources]
    return "\n".join(kept + ["-"] * (2 + sources - len(kept)))


def _lines(text: str) -> list[str]:
    """Return lines as Spark takes them: a file's name may have signs in it that Python takes for the end of a line too."""
    return text.removesuffix("\n").split("\n")


def _log_offset(text: str) -> int | None:
    if text == "-":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value.get("logOffset") if isinstance(value, dict) and set(value) == {"logOffset"} else None


def _is_file_log(folder: Path) -> bool:
    for file in folder.glob("[0-9]*") if folder.is_dir() else ():
        lines = _lines(file.read_text())
        return len(lines) < 2 or '"path"' in lines[1]
    return False
