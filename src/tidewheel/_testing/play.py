"""Running a job in a test: over given inputs, or as its sources' scripts say; in memory, or on Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel._connectors.memory.iterable import IterableSource
from tidewheel._core import faults
from tidewheel._core.text import shortened
from tidewheel._core.user_code import warn
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._operators.time_checks import check_clock, stuck
from tidewheel._program.job import Job
from tidewheel._testing.cells import write_cell
from tidewheel._testing.clock import Clock
from tidewheel._testing.memory import MemoryRun
from tidewheel._testing.result import Result, result_of
from tidewheel._testing.rewire import rewired
from tidewheel._testing.script import CELL, EOF, PAUSE, RESCALE, Batch, Finish, Flush, ScriptedSource, Step, steps
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Inputs = Mapping[str, Sequence[Any]]


def run_in_memory(
    job: Job,
    inputs: Inputs | Sequence[Inputs | PAUSE | RESCALE | CELL] | None = None,
    *,
    parallelism: int = 1,
    partitions: int = 1,
    flush: bool = True,
    state: str | None = None,
    clock: Clock | None = None,
) -> Result:
    """Run a job as it is, in this process, and return what came out.

    `inputs` gives the records of each source by its name: one mapping for one batch, or a list of them for several,
    with `CELL`, `PAUSE` and `RESCALE` between them. Without it, the job's own sources must be scripts or iterables.
    Sinks collect instead of writing; the state is in memory and goes with the run, unless `state` names a place. At the end
    every window closes. With `flush=False` the run ends as one with `available-now` does: what is due by the clock of the data
    is out, other windows stay open.
    """
    if inputs is None:
        return run_script(job, parallelism=parallelism, partitions=partitions, state=state, clock=clock)
    batches = [inputs] if isinstance(inputs, Mapping) else list(inputs)
    todo: list[Step] = [*map(_step, batches), Flush() if flush else Finish()]
    return play_in_memory(job, todo, parallelism, partitions, state, clock)


def _step(given: Any) -> Step:
    """Return what a test gives between two others: the records of a batch, or what happens there."""
    if isinstance(given, Mapping):
        return Batch(given)
    if isinstance(given, PAUSE | RESCALE | CELL):
        return given
    raise ConfigError(
        f"{shortened(given)} is neither a batch, such as {{'SOURCE': [RECORD, …]}}, nor a CELL, PAUSE or RESCALE; other markers "
        "stand in the script of a ScriptedSource"
    )


def run_script(
    job: Job,
    *,
    spark: SparkSession | None = None,
    parallelism: int = 1,
    partitions: int = 1,
    state: str | None = None,
    clock: Clock | None = None,
) -> Result:
    """Run a job as the scripts of its sources say, in memory, or on Spark if a session is given."""
    scripts = {}
    for node in job.graph.nodes:
        if isinstance(node.operator, SourceOperator):
            source = node.operator.source
            if isinstance(source, IterableSource):
                scripts[node.name] = ([*source.items, EOF()], source.batch_size)
            elif isinstance(source, ScriptedSource):
                scripts[node.name] = (source.script, source.batch_size)
            else:
                raise ConfigError(
                    f"source {node.name!r} ({source.describe()}) needs Spark to be read; give its records as inputs, "
                    f"run_in_memory(job, {{{node.name!r}: […]}})"
                )
            partitions = max(partitions, source.partitions)
    if spark is not None:
        return play_on_spark(job, steps(scripts), parallelism, partitions, spark)
    return play_in_memory(job, steps(scripts), parallelism, partitions, state, clock)


def play_in_memory(
    job: Job, todo: Sequence[Step], parallelism: int, partitions: int, state: str | None, clock: Clock | None
) -> Result:
    """Take the steps in this process."""
    _check_clock(job, todo)
    changed = rewired(job, state)
    time_of = clock or Clock(time.time_ns())
    lives = _Lives(
        lambda: MemoryRun(changed.job, parallelism=parallelism, partitions=partitions, clock=clock and time_of)
    )
    with lives:
        for step in todo:
            if isinstance(step, PAUSE):
                time_of.advance(step.seconds)
            elif isinstance(step, RESCALE):
                changed.job.rescale(step.parallelism)
            elif isinstance(step, CELL):
                lives.set_cell(step)
            elif isinstance(step, Finish):
                lives.finish()
            else:
                lives.take(step)
    return result_of(changed.job, changed.outputs)


def _check_clock(job: Job, todo: Sequence[Step]) -> None:
    """Refuse a job that waits for a clock which no step moves, as a start does; warn where the test ends as bounded runs do."""
    if not any(isinstance(step, Flush) for step in todo):
        check_clock(job.graph)
    elif text := stuck(job.graph):
        warn(f"{text}. Here the end of the test was such an end: any other run refuses the program")


class _Lives:
    """One run after the other of a job in this process: when one dies, the next goes on from what is committed."""

    def __init__(self, begin: Callable[[], MemoryRun]) -> None:
        self._begin = begin
        self._run: MemoryRun | None = None

    def __enter__(self) -> None:
        self._live()

    def __exit__(self, *_: object) -> None:
        self._end()

    def take(self, step: Batch | Flush) -> None:
        """Take a step to its end, dying as often as it says."""
        tried: int | None = None
        for point in (*step.crashes, None):
            try:
                with nullcontext() if point is None else _armed(point):
                    run = self._live()
                    # A life after a crash may number anew batches that changed nothing: only the last try's number tells.
                    if tried is not None and run.next_batch > tried:
                        return
                    tried = run.next_batch
                    self._attempt(run, step)
                return
            except faults.InjectedFault:
                self._end()

    def finish(self) -> None:
        """Let the epochs that are due go out."""
        self._live().finish()

    def set_cell(self, step: CELL) -> None:
        """Change a cell of the job."""
        self._live().set_cell(step.name, step.value)

    def _attempt(self, run: MemoryRun, step: Batch | Flush) -> None:
        if isinstance(step, Batch):
            run.batch(step.inputs)
        elif run.run.flushed is None:
            run.flush()

    def _live(self) -> MemoryRun:
        if self._run is None:
            self._run = self._begin()
        return self._run

    def _end(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None


def play_on_spark(job: Job, todo: Sequence[Step], parallelism: int, partitions: int, spark: SparkSession) -> Result:
    """Take the steps on Spark, each batch a run of its own: what was read before is what the sources begin with."""
    from tidewheel._spark.driver import Driver
    from tidewheel._spark.options import RunOptions

    inputs: dict[str, list[Any]] = {}
    for step in todo:
        for name, records in step.inputs.items() if isinstance(step, Batch) else ():
            inputs.setdefault(name, []).extend(records)
    names = [node.name for node in job.graph.nodes if isinstance(node.operator, SourceOperator)]
    sources = {name: _Prefix(inputs.get(name, []), partitions) for name in names}
    with tempfile.TemporaryDirectory(prefix="tidewheel-test-") as folder:
        changed = rewired(job, f"file://{folder}/state", sources)
        prefixes = {
            node.name: node.operator.source
            for node in changed.job.graph.nodes
            if isinstance(node.operator, SourceOperator)
        }
        options = RunOptions(parallelism=parallelism, spark=spark, local=f"{folder}/local", trigger="available-now")
        for step in todo:
            if isinstance(step, PAUSE):
                time.sleep(step.seconds)
            elif isinstance(step, RESCALE):
                changed.job.rescale(step.parallelism)
            elif isinstance(step, CELL):
                write_cell(changed.job, step.name, step.value)
            else:
                for name, records in step.inputs.items() if isinstance(step, Batch) else ():
                    prefixes[name].length += len(records)  # type: ignore[attr-defined]
                # A batch stands in the middle of a run, which does not end after it.
                chosen = replace(options, bounded=isinstance(step, Flush), finishes=isinstance(step, Finish))
                for point in () if isinstance(step, Finish) else step.crashes:
                    try:
                        with _armed(point):
                            Driver(changed.job, changed.job.plan(), chosen).execute()
                    except faults.InjectedFault:
                        continue
                Driver(changed.job, changed.job.plan(), chosen).execute()
        return result_of(changed.job, changed.outputs)


class _Prefix(IterableSource):
    """The first items of a list, more of them from run to run, with the column types of the whole list."""

    length = 0

    def __init__(self, items: Sequence[Any], partitions: int) -> None:
        super().__init__(items, None, partitions)

    def declared(self, shape: Any) -> _Prefix:
        self._declared = shape
        return self

    def table(self) -> pa.Table:
        return super().table().slice(0, self.length)


@contextmanager
def _armed(point: str) -> Iterator[None]:
    faults.arm(f"{point}=raise")
    try:
        yield
    finally:
        faults.arm("")
