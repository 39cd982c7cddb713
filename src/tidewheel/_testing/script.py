"""Scripts: what a source gives and what happens meanwhile, written down as one list."""

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
    """The source ends. When all have, every window closes and the job takes no more data."""


@dataclass(frozen=True)
class CRASH:
    """The process dies in the batch of the items before it, and a new one goes on.

    `at` is the fault point where it dies: by default all tasks have done their work and nothing is committed. With
    `commit.created` the batch is committed and its output not published. `tidewheel._core.faults.POINTS` has them all; those
    of tasks pass by on Spark, where tasks are processes of their own.
    """

    at: str = "commit.before"


@dataclass(frozen=True)
class PAUSE:
    """Nothing comes for this many seconds: the test's clock moves on, and on Spark the time really passes."""

    seconds: float


@dataclass(frozen=True)
class RESCALE:
    """From the next batch on, this many tasks."""

    parallelism: int


@dataclass(frozen=True)
class CELL:
    """From the next batch on, a cell that the job declares has this value; None: the cell is cleared, and its default holds."""

    name: str
    value: Any


Marker = EOF | CRASH | PAUSE | RESCALE | CELL


@dataclass(frozen=True)
class Finish:
    """A step of a run: it ends with all that is due by the clock of the data, and the job stays open."""


@dataclass(frozen=True)
class Batch:
    """A step of a run: one batch, in which the process dies at each of the fault points, one life after the other."""

    inputs: Mapping[str, Sequence[Any]]
    crashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flush:
    """A step of a run: the end of all data."""

    crashes: tuple[str, ...] = ()


Step = Batch | Finish | Flush | PAUSE | RESCALE | CELL


class ScriptedSource(Source[Any]):
    """Gives items, and makes things happen between them.

        ScriptedSource([1, 2, 3, CRASH(), 4, RESCALE(3), 5, 6, EOF()])

    Items between two markers are a batch, or several of `batch_size`. `run_script` and `run_in_memory` act on the
    markers. `partitions` tasks read each batch; a run by `job.run` gives the items and passes the markers over.
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
                raise ConfigError("nothing but CRASH() comes after EOF() in a script")
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
    """Return every fault point that a run passes, on Spark too."""
    import tidewheel._spark.driver  # noqa: F401  declares its own

    return set(faults.POINTS)


@dataclass
class _Reading:
    """How far the script of one source was read."""

    name: str
    script: list[Any]
    batch_size: int | None
    at: int = 0
    ended: bool = field(default=False)

    def data(self) -> list[Any]:
        """Take the items up to the next marker, or a batch full of them."""
        start = self.at
        while self.at < len(self.script) and not isinstance(self.script[self.at], Marker):
            if self.batch_size is not None and self.at - start == self.batch_size:
                break
            self.at += 1
        return self.script[start : self.at]

    def marker(self) -> Marker | None:
        """Take the marker that is next, if one is."""
        if self.at < len(self.script) and isinstance(item := self.script[self.at], Marker):
            self.at += 1
            return item
        return None


def steps(scripts: Mapping[str, tuple[Sequence[Any], int | None]]) -> list[Step]:
    """Return what a run does, from the script of each source and its size of a batch. Pure.

    A batch has what every source gives up to its next marker; then the markers count, source by source. The data ends
    when every source has.

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
