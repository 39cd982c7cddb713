"""Read positions in commits of versions that stored Spark's log (`Manifest.spark`); they are never written.

Those versions recorded Spark's offsets as text, one line for each stream of the query, and the files that Spark's file
sources had read as lines of JSON after the number of the source's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from tidewheel._checkpoint.manifest import Manifest, SeenFile, SparkLog
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError

GIVEN = "given"
"""The kind of a source with records passed to a run in memory: it has no position."""
NO_OFFSET = "-"
"""Spark's text for a source without an offset."""
_CLOCK = ""
"""The name of the former ticks source."""


@dataclass(frozen=True)
class OldPosition:
    """The log entries of one source of the program."""

    kinds: tuple[str, ...]
    """The kind of each stream that the source reads. Only a DataFrame can read several."""
    logs: tuple[int, ...]
    """The log of each stream; a stream that is read twice has one log."""
    query: str
    batch: int
    headers: tuple[str, str]
    """The first two lines of Spark's offsets for the previous batch and for the newest one."""
    offsets: tuple[tuple[str, ...], tuple[str, ...]]
    """The offset of each stream at the end of the previous batch and of the newest one."""
    files: dict[str, str]
    """Small files of the streams, by `log/name`."""

    @property
    def text(self) -> str | None:
        """The newest offset of a source with one stream; None if it has none."""
        return None if self.offsets[1][0] == NO_OFFSET else self.offsets[1][0]


@dataclass(frozen=True)
class OldSeenFile:
    """A file that one of Spark's file sources has read."""

    log: int
    path: str
    batch: int
    modified_ms: int


class _Entry(msgspec.Struct):
    """A line of the list of read files, behind the number of the log."""

    path: str
    batchId: int
    timestamp: int


def recorded_kinds(state: Manifest | None) -> dict[str, str]:
    """Return the kind of each source in a commit, by the names in the program that made the commit."""
    if state is None:
        return {}
    if state.spark is not None:
        return {source.name: source.kind for source in state.spark.sources if source.name != _CLOCK}
    given = [name for name, position in state.source_offsets.items() if position == NO_OFFSET]
    return {**dict.fromkeys(given, GIVEN), **state.source_kinds}


def old_positions(log: SparkLog) -> dict[str, OldPosition]:
    """Return the log entries of each source, by the recorded names."""
    newest = max(log.offsets, default=None)
    if newest is None:
        return {}
    texts = [log.offsets.get(newest - 1, log.offsets[newest]), log.offsets[newest]]
    (before_header, before), (header, now) = (_parted(text) for text in texts)
    lines: dict[str, list[int]] = {}
    for number, source in enumerate(log.sources):
        if source.name != _CLOCK:
            lines.setdefault(source.name, []).append(number)
    found = {}
    for name, numbers in lines.items():
        if numbers[-1] >= len(now):
            raise CorruptError(f"Spark's log of offsets has no line for the source {name!r} in batch {newest}")
        logs = tuple(log.sources[number].log for number in numbers)
        found[name] = OldPosition(
            tuple(log.sources[number].kind for number in numbers),
            logs,
            log.query,
            newest,
            (before_header, header),
            # A source that was added with the newest batch has no earlier line.
            (
                tuple(before[number] if number < len(before) else NO_OFFSET for number in numbers),
                tuple(now[number] for number in numbers),
            ),
            {place: text for place, text in log.files.items() if int(place.partition("/")[0]) in logs},
        )
    return found


def _parted(text: str) -> tuple[str, list[str]]:
    # Split like Spark: a file name may contain characters that end a line only in Python.
    version, *rest = text.removesuffix("\n").split("\n")
    if not rest:
        raise CorruptError(f"{text!r} is not an entry of Spark's log of offsets: its second line is missing")
    about, *offsets = rest
    return f"{version}\n{about}", offsets


def old_seen_file(line: str) -> OldSeenFile:
    r"""Parse a line of the old list of read files.

    >>> old_seen_file('3\t{"path": "file:/in/a", "timestamp": 17, "batchId": 2}')
    OldSeenFile(log=3, path='file:/in/a', batch=2, modified_ms=17)
    """
    log, _, text = line.partition("\t")
    try:
        entry = msgspec.json.decode(text, type=_Entry)
        return OldSeenFile(int(log), entry.path, entry.batchId, entry.timestamp)
    except (ValueError, *UNDECODABLE) as error:
        raise CorruptError(f"{line!r} is not a line of Spark's list of read files ({error})") from None


def numbered(source: str, old: OldPosition, seen: Iterable[OldSeenFile]) -> list[SeenFile]:
    """Return the files that a source has read, numbered from 0 in the order in which it read them."""
    own = sorted(
        (file for file in seen if file.log in old.logs), key=lambda file: (file.batch, file.modified_ms, file.path)
    )
    return [SeenFile(source, _listed(file.path), number, file.modified_ms, 0) for number, file in enumerate(own)]


def _listed(url: str) -> str:
    """Return the URL of a file in a store as our listing has it: Spark encodes it, and writes s3a for s3."""
    return url if url.startswith("file:") else re.sub("^s3[an]:", "s3:", unquote(url))


def by_batch(source: str, old: OldPosition, seen: Iterable[OldSeenFile]) -> list[SeenFile]:
    """Return the files that the streams of a DataFrame have read, numbered by Spark's batches and prefixed with their stream."""
    order = {log: place for place, log in enumerate(dict.fromkeys(old.logs))}
    own = sorted(
        (file for file in seen if file.log in order), key=lambda file: (file.batch, file.modified_ms, file.path)
    )
    return [SeenFile(source, f"{order[file.log]}:{file.path}", file.batch, file.modified_ms, 0) for file in own]
