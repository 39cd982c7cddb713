"""Scripts: lists of the items of a source, and of the events between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidewheel._connectors.memory.iterable import IterableSource
from tidewheel._connectors.source import Source, SourceReader
from tidewheel._core import faults
from tidewheel._values import Shape
from tidewheel.errors import ConfigError


@dataclass(frozen=True)
class EOF:
    """The end of a source. When all sources have ended, every window closes and the job accepts no more data."""


@dataclass(frozen=True)
class CRASH:
    """The process dies in the batch of the items before the marker, and a new process continues.

    `at` is the fault point of the crash: by default, all tasks are done and nothing is committed. With `commit.created`, the
    batch is committed and its output is not published. `tidewheel._core.faults.POINTS` lists all. Fault points of tasks have
    no effect on Spark, where tasks are separate processes.
    """

    at: str = "commit.before"


@dataclass(frozen=True)
class PAUSE:
    """A pause of this many seconds without data: it moves the clock of the test; on Spark the run really waits."""

    seconds: float


@dataclass(frozen=True)
class RESCALE:
    """Another number of tasks, from the next batch on."""

    parallelism: int


@dataclass(frozen=True)
class CELL:
    """Another value of a cell, from the next batch on. None clears the cell, so that its default applies."""

    name: str
    value: Any


Marker = EOF | CRASH | PAUSE | RESCALE | CELL


@dataclass(frozen=True)
class Finish:
    """A step of a run: emit everything that the clock of the data has passed, and leave the job open."""


@dataclass(frozen=True)
class Batch:
    """A step of a run: one batch, with a crash at each of the fault points in turn."""

    inputs: Mapping[str, Sequence[Any]]
    crashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flush:
    """A step of a run: the end of all data."""

    crashes: tuple[str, ...] = ()


Step = Batch | Finish | Flush | PAUSE | RESCALE | CELL


class ScriptedSource(Source[Any]):
    """A source of items, with crashes, pauses and other events between them.

        ScriptedSource([1, 2, 3, CRASH(), 4, RESCALE(3), 5, 6, EOF()])

    The items between two markers are a batch, or several batches of `batch_size`. `run_script` and `run_in_memory` execute
    the markers; `job.run` ignores them. `partitions` tasks read each batch.
    """

    kind = "iterable"

    def __init__(self, script: Iterable[Any], batch_size: int | None = None, partitions: int = 1) -> None:
        """Take the script."""
        self.script = list(script)
        self.batch_size, self.partitions = batch_size, partitions
        for position, item in enumerate(self.script):
            if isinstance(item, CRASH) and item.at not in _points():
                raise ConfigError(f"there is no fault point {item.at!r}; there are {', '.join(sorted(_points()))}")
            if isinstance(item, EOF) and any(not isinstance(after, CRASH) for after in self.script[position + 1 :]):
                raise ConfigError("only CRASH() can follow EOF() in a script")
        self.items = [item for item in self.script if not isinstance(item, Marker)]
        self._given: Source = IterableSource(self.items, batch_size, partitions)
        self.shape = self._given.shape

    def declared(self, shape: Shape) -> Source:
        clone = ScriptedSource(self.script, self.batch_size, self.partitions)
        clone._given = clone._given.declared(shape)
        return clone

    def describe(self) -> str:
        return f"script of {len(self.items)} items"

    def open(self) -> SourceReader:
        return self._given.open()


def _points() -> set[str]:
    """Return every fault point of a run, also those on Spark."""
    import tidewheel._spark.driver  # noqa: F401  declares its own

    return set(faults.POINTS)


@dataclass
class _Reading:
    """The position in the script of one source."""

    name: str
    script: list[Any]
    batch_size: int | None
    at: int = 0
    ended: bool = field(default=False)

    def data(self) -> list[Any]:
        """Return the items up to the next marker, at most one batch."""
        start = self.at
        while self.at < len(self.script) and not isinstance(self.script[self.at], Marker):
            if self.batch_size is not None and self.at - start == self.batch_size:
                break
            self.at += 1
        return self.script[start : self.at]

    def marker(self) -> Marker | None:
        """Return the next marker, if the next element is one."""
        if self.at < len(self.script) and isinstance(item := self.script[self.at], Marker):
            self.at += 1
            return item
        return None


def steps(scripts: Mapping[str, tuple[Sequence[Any], int | None]]) -> list[Step]:
    """Return the steps of a run, given the script and the batch size of each source. Pure.

    A batch has the items of every source up to its next marker; then the markers are executed, source by source. The data
    ends when every source has ended.

    >>> steps({"in": ([1, 2, CRASH(), 3, EOF()], None)})
    [Batch(inputs={'in': [1, 2]}, crashes=('commit.before',)), Batch(inputs={'in': [3]}, crashes=()), Flush(crashes=())]
    """
    sources = [_Reading(name, list(script), size) for name, (script, size) in scripts.items()]
    todo: list[Step] = []
    while True:
        inputs = {source.name: data for source in sources if (data := source.data())}
        if inputs:
            todo.append(Batch(inputs))
        markers = [(source, marker) for source in sources if (marker := source.marker()) is not None]
        for source, marker in markers:
            if isinstance(marker, EOF):
                source.ended = True
                if all(other.ended for other in sources):
                    todo.append(Flush())
            elif isinstance(marker, CRASH):
                _crash(todo, marker.at)
            else:
                todo.append(marker)
        if not inputs and not markers:
            return todo


def _crash(found: list[Step], at: str) -> None:
    last = found[-1] if found else None
    if isinstance(last, Batch | Flush):
        found[-1] = replace(last, crashes=(*last.crashes, at))
    else:
        found.append(Batch({}, (at,)))
