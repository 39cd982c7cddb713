"""Which source of the program each line of Spark's offsets is of, and what it continues.

Spark knows sources by their position: a line of offsets for each place where a stream is read, in the order of the query's
plan, and a folder for each stream, numbered in the same order. A stream that is read in two places has two lines and one
folder. The manifest knows them by name, so that a program may declare its sources in another order, and add and drop some.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidewheel._checkpoint.manifest import Position, SparkLog, SparkSource
from tidewheel._engine.stored_names import OFFSETS, check_dropped, dropped, letting_go, renamed
from tidewheel.errors import StateError

CLOCK = ""
"""The name of the ticks, which are no source of the program."""
FILES = "files"
"""The kind of Spark's file sources, which log the files that they have seen."""

_SPARK_FILES = re.compile(r"FileSource\[.*\]", re.DOTALL)
_OURS = re.compile(r"tidewheel-(.+?)(-[0-9a-f]{8})?")


@dataclass(frozen=True)
class SourceLine:
    """A line of Spark's offsets: the source in the program, the kind of its stream, and the number of its folder."""

    name: str
    kind: str
    folder: int


@dataclass(frozen=True)
class Continuation:
    """What each line of a query's offsets continues."""

    lines: tuple[SourceLine, ...]
    sources: tuple[SparkSource, ...]
    """One for each line: as the manifest records it."""
    positions: tuple[int | None, ...]
    """For each line, the line of the recorded offsets that it continues; None: its source is new."""
    logs: int
    """How many numbers of logs are given out."""

    def folders(self) -> dict[int, int]:
        """Return the folder of each log."""
        return {source.log: line.folder for source, line in zip(self.sources, self.lines, strict=True)}

    def line_of(self, folder: int) -> int:
        """Return the first line of the stream that has this folder."""
        return next(number for number, line in enumerate(self.lines) if line.folder == folder)


def source_lines(parts: Sequence[tuple[str, DataFrame]], query: DataFrame) -> tuple[SourceLine, ...]:
    """Return the lines of a query over these sources: their names and frames, in the order in which the query reads them."""
    names = [name for name, frame in parts for _ in _streams(frame)]
    streams = _streams(query)
    assert len(names) == len(streams), f"{len(names)} streams in the sources, {len(streams)} in the query"
    distinct: list[Any] = []
    lines = []
    for name, stream in zip(names, streams, strict=True):
        folder = next((number for number, other in enumerate(distinct) if other.equals(stream)), len(distinct))
        if folder == len(distinct):
            distinct.append(stream)
        lines.append(SourceLine(name, kind_of(stream.sourceName()), folder))
    return tuple(lines)


def _streams(frame: DataFrame) -> list[Any]:
    """Return the streaming leaves of a frame's plan, as objects of the JVM."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    relations = [leaves.apply(number) for number in range(leaves.size())]
    return [leaf for leaf in relations if leaf.getClass().getSimpleName().startswith("StreamingRelation")]


def kind_of(name: str) -> str:
    """Return the kind of a stream from the name that Spark has for it.

    >>> [kind_of(name) for name in ("FileSource[/in]", "rate", "tidewheel-iterable", "tidewheel-nats-log-0a1b2c3d")]
    ['files', 'rate', 'iterable', 'nats-log']
    """
    if _SPARK_FILES.fullmatch(name):
        return FILES
    ours = _OURS.fullmatch(name)
    return ours[1] if ours else name


def recorded_kinds(log: SparkLog | None, names: Sequence[str], aliases: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the kind of stream that each source has read so far under its name or its alias; new ones are not in it."""
    recorded = {source.name: source.kind for source in (log.sources if log is not None else ())}
    former = renamed(recorded, names, aliases)
    return {name: recorded[former.get(name, name)] for name in names if former.get(name, name) in recorded}


def dropped_sources(
    log: SparkLog | None, lines: Sequence[SourceLine], aliases: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the sources with recorded offsets that the query lacks."""
    recorded = {source.name for source in (log.sources if log is not None else ())} - {CLOCK}
    return dropped(recorded, {line.name for line in lines}, aliases)


def continued(
    log: SparkLog | None,
    lines: Sequence[SourceLine],
    aliases: Mapping[str, Sequence[str]],
    allow_dropped_source: Collection[str] = (),
) -> Continuation:
    """Return what each line of the query continues; refuse sources that are gone, or of another kind under the same name.

    `allow_dropped_source` are the names of those that may be gone.
    """
    recorded: dict[str, list[tuple[int, SparkSource]]] = {}
    for position, source in enumerate(log.sources if log is not None else ()):
        recorded.setdefault(source.name, []).append((position, source))
    wanted: dict[str, list[SourceLine]] = {}
    for line in lines:
        wanted.setdefault(line.name, []).append(line)
    former = renamed(recorded, wanted, aliases)
    before: dict[str, list[tuple[int, SparkSource]]] = {
        name: recorded.get(former.get(name, name), []) for name in wanted
    }
    for name in wanted:
        if before[name]:
            _refuse_other_kind(former.get(name, name), name, [source for _, source in before[name]], wanted[name])
    was = {name: ", ".join(source.kind for _, source in sources) for name, sources in recorded.items() if name != CLOCK}
    now = {name: ", ".join(line.kind for line in lines) for name, lines in wanted.items() if name != CLOCK}
    check_dropped(OFFSETS, "the job has read", was, now, aliases, allow_dropped_source)
    next_log = log.logs if log is not None else 0
    logs: dict[int, int] = {}
    sources: list[SparkSource] = []
    positions: list[int | None] = []
    for line in lines:
        if before[line.name]:
            position, source = before[line.name].pop(0)
            positions.append(position)
            number = source.log
        else:
            positions.append(None)
            number = logs.get(line.folder, next_log)
            next_log = max(next_log, number + 1)
        if logs.setdefault(line.folder, number) != number or list(logs.values()).count(number) > 1:
            raise StateError(
                f"source {line.name!r} shares its stream with another source otherwise than before; give it a new name, and "
                f"go on without its old offsets with {letting_go(OFFSETS, [former.get(line.name, line.name)])}"
            )
        sources.append(SparkSource(line.name, line.kind, number))
    return Continuation(tuple(lines), tuple(sources), tuple(positions), next_log)


def _refuse_other_kind(old: str, name: str, sources: Sequence[SparkSource], lines: Sequence[SourceLine]) -> None:
    was, now = [source.kind for source in sources], [line.kind for line in lines]
    if was != now:
        raise StateError(
            f"source {name!r} read {_streams_of(was)} and now reads {_streams_of(now)}: the offsets of one mean nothing to the "
            "other. Give the new source a name of its own, and go on without the offsets of the old one with "
            f"{letting_go(OFFSETS, [old])}"
        )


def _streams_of(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{len(kinds)} streams ({', '.join(kinds)})"


def offsets_by_name(offsets: Sequence[str], lines: Sequence[SourceLine]) -> dict[str, Position]:
    """Return the offsets of each source of the program; those of one that reads several streams are one text, a line each."""
    texts_by_name: dict[str, list[str]] = {}
    for line, text in zip(lines, offsets, strict=True):
        if line.name != CLOCK:
            texts_by_name.setdefault(line.name, []).append(text)
    return {name: "\n".join(texts) for name, texts in texts_by_name.items()}
