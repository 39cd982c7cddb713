"""Run a job in a test, with given inputs or with the scripts of its sources, in memory or on Spark."""

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
from tidewheel._operators.time_checks import check_clock, missing_clock
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
    """Run a job in this process, without Spark, and return its outputs and states.

    `inputs` gives the records of each source by its name: one mapping for one batch, or a list of them for several,
    with `CELL`, `PAUSE` and `RESCALE` between them. Without it, the job's own sources must be scripts or iterables.
    Sinks collect instead of writing; the state is in memory and goes with the run, unless `state` names a place. At the end
    every window closes. With `flush=False` the run ends like a run with `until="caught-up"`: it emits what is due by event
    time, and other windows stay open.
    """
    if inputs is None:
        return run_script(job, parallelism=parallelism, partitions=partitions, state=state, clock=clock)
    batches = [inputs] if isinstance(inputs, Mapping) else list(inputs)
    todo: list[Step] = [*map(_step, batches), Flush() if flush else Finish()]
    return play_in_memory(job, todo, parallelism, partitions, state, clock)


def _step(given: Any) -> Step:
    """Return a checked item of the inputs: the records of a batch, or a marker."""
    if isinstance(given, Mapping):
        return Batch(given)
    if isinstance(given, PAUSE | RESCALE | CELL):
        return given
    raise ConfigError(
        f"{shortened(given)} is neither a batch, such as {{'SOURCE': [RECORD, …]}}, nor a CELL, PAUSE or RESCALE; "
        "other markers "
        "can only be in the script of a ScriptedSource"
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
    """Run a job with the scripts of its sources, in memory, or on Spark if a session is given."""
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
                    f"source {node.name!r} ({source.describe()}) needs Spark; pass its records as inputs, "
                    f"run_in_memory(job, {{{node.name!r}: […]}})"
                )
            partitions = max(partitions, source.partitions)
    if spark is not None:
        return play_on_spark(job, steps(scripts), parallelism, partitions, spark)
    return play_in_memory(job, steps(scripts), parallelism, partitions, state, clock)


def play_in_memory(
    job: Job, todo: Sequence[Step], parallelism: int, partitions: int, state: str | None, clock: Clock | None
) -> Result:
    """Run the steps in this process."""
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
    """Raise an error if the job waits for a clock that no step advances; only warn if the test ends like a bounded run."""
    if not any(isinstance(step, Flush) for step in todo):
        check_clock(job.graph)
    elif text := missing_clock(job.graph):
        warn(f"{text}. This test ends like a bounded run; other runs refuse the program")


class _Lives:
    """Consecutive runs of a job in this process: after a crash, the next run continues from the last commit."""

    def __init__(self, begin: Callable[[], MemoryRun]) -> None:
        self._begin = begin
        self._run: MemoryRun | None = None

    def __enter__(self) -> None:
        self._live()

    def __exit__(self, *_: object) -> None:
        self._end()

    def take(self, step: Batch | Flush) -> None:
        """Complete a step, with the crashes that it contains."""
        tried: int | None = None
        for point in (*step.crashes, None):
            try:
                with nullcontext() if point is None else _armed(point):
                    run = self._live()
                    # A run after a crash may reuse the numbers of empty batches, so only the number of the last try
                    # is valid.
                    if tried is not None and run.next_batch > tried:
                        return
                    tried = run.next_batch
                    self._attempt(run, step)
                return
            except faults.InjectedFault:
                self._end()

    def finish(self) -> None:
        """Send the epochs that are due."""
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
    """Run the steps on Spark, one run per batch: the sources start with the items that were read before."""
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
        options = RunOptions(parallelism=parallelism, spark=spark, local=f"{folder}/local", until="caught-up")
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
                # In a real run, more batches follow, so the run does not end after this one.
                chosen = replace(options, until="end" if isinstance(step, Flush) else "caught-up")
                finishes = isinstance(step, Finish)
                for point in () if isinstance(step, Finish) else step.crashes:
                    try:
                        with _armed(point):
                            Driver(changed.job, changed.job.plan(), chosen, finishes=finishes).execute()
                    except faults.InjectedFault:
                        continue
                Driver(changed.job, changed.job.plan(), chosen, finishes=finishes).execute()
        return result_of(changed.job, changed.outputs)


class _Prefix(IterableSource):
    """The first items of a list, more in each run, with the column types of the whole list."""

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
