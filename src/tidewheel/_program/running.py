"""Run: a handle on a job that runs in this process."""

from __future__ import annotations

import atexit
import html
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypedDict, Unpack

from tidewheel._core.urls import Url
from tidewheel._engine.stored_names import check_names
from tidewheel._operators.time_checks import check_clock
from tidewheel._time.duration import Duration, seconds, seconds_or_none
from tidewheel.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewheel._checkpoint.tools.state_reader import Found
    from tidewheel._observe.metrics import Metrics
    from tidewheel._program.job import Job
    from tidewheel._spark.progress import BatchProgress, RunResult

_SHOWN_BATCHES = 10

_READY_WITHIN = "5 min"
_LEAST_TICK = 1_000_000
"""In ns: an idle job that looks at the clock more often does nothing else."""

Serving = Callable[[], Iterable[AbstractContextManager[object]]]
"""Makes what listens while a run goes."""


class RunArguments(TypedDict, total=False):
    """What `Job.run` and `Job.start` take; `Job.run` says what each means."""

    bounded: bool
    trigger: Duration | None
    parallelism: int | None
    master: str | None
    restarts: int
    backoff: Duration
    take_over: bool
    allow_dropped_state: Collection[str]
    allow_dropped_source: Collection[str]
    drop_unpublished: Collection[str]
    local: str | None
    shared_state: bool
    spark: SparkSession | None
    conf: Mapping[str, str] | None
    progress: Callable[[BatchProgress], None] | None
    on_phase: Callable[[str | None], None] | None
    on_readers: Callable[[Mapping[str, str]], None] | None
    tick: Duration
    serve: int | None
    history: Duration | None
    metrics: int | str | None
    ready_within: Duration


class Driving(Protocol):
    """What carries the run: the Spark driver, or a stand-in in tests."""

    @property
    def phase(self) -> str | None:
        """What the start is at; None: the job runs."""

    def progress(self) -> list[BatchProgress]:
        """Return the last committed batches."""

    def execute(self) -> RunResult:
        """Run to the end."""

    def stop(self) -> None:
        """Let the batch that is running finish and commit, then end. From any thread."""


@dataclass(frozen=True)
class RunStatus:
    """What a run is doing.

    >>> str(RunStatus("starting", phase="Spark"))
    'starting: Spark'
    """

    state: Literal["starting", "running", "stopped", "failed"]
    """`stopped`: it ended in order, at its own end or as asked; `RunResult.stopped` tells which."""
    phase: str | None = None
    """While starting: what the start is at."""
    error: BaseException | None = None
    """After a failure: what `Run.wait` raises."""

    def __str__(self) -> str:
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return ": ".join(part for part in (self.state, self.phase, error) if part)


_going: set[Run] = set()
"""The runs that go on in the background of this process."""


class Run:
    """A job that runs in the background: made by `Job.start`.

    Every method may be called from any thread. As a context manager it is stopped, and waited for, at the end of the block. A
    run that is still going when the program ends is stopped the same way.

    >>> import tempfile
    >>> from tidewheel import Job, sinks, sources
    >>> job, out = Job("totals", state=tempfile.mkdtemp()), sinks.collect()
    >>> numbers = job.source("in", sources.iterable([3, 4])).key_by("by-parity", lambda n: n % 2)
    >>> _ = numbers.reduce("largest", max).sink("out", out)
    >>> run = job.start(bounded=True, parallelism=1)
    >>> run.wait().event_count
    2
    >>> print(run.status)
    stopped
    >>> run.query("largest", 1).value
    3
    """

    def __init__(self, job: Job, driver: Callable[[], Driving], serving: Serving = tuple) -> None:
        self.job = job
        self._make_driver = driver
        self._serving = serving
        self._driver: Driving | None = None
        self._asked = threading.Event()
        self._ended = threading.Event()
        self._result: RunResult | None = None
        self._error: BaseException | None = None

    @property
    def status(self) -> RunStatus:
        """What the run is doing: starting, with the phase; running; stopped; or failed, with the error."""
        if self._error is not None:
            return RunStatus("failed", error=self._error)
        if self._ended.is_set():
            return RunStatus("stopped")
        phase = "checking" if self._driver is None else self._driver.phase
        return RunStatus("running") if phase is None else RunStatus("starting", phase)

    @property
    def progress(self) -> list[BatchProgress]:
        """The last committed batches, up to a thousand, with durations where Spark has told them."""
        return [] if self._driver is None else self._driver.progress()

    def query(self, operator: str, key: Any) -> Found:
        """Look up one key's committed state, as `Job.query` does. `NotFound` before the first commit: the start takes a while.

        - `operator`: the name of a step with state.
        - `key`: the key.
        """
        try:
            return self.job.query(operator, key)
        except NotFound as error:
            status = self.status
            if status.state != "starting" or self.job._lookup().has_commit():
                raise
            raise NotFound(
                f"job {self.job.name!r} is starting (at: {status.phase}), and nothing is committed yet: ask again when "
                '`run.status.state` is "running", or after `run.wait()` if the run ends by itself'
            ) from error

    def rescale(self, parallelism: int) -> None:
        """Use another number of tasks from the next batch on, as `Job.rescale` says.

        - `parallelism`: how many tasks, 1 to the job's `n_shards`.
        """
        self.job.rescale(parallelism)

    def stop(self) -> None:
        """Ask the run to end when its batch is committed and published, and return at once; `wait` waits for the end."""
        # In this order: a driver that is made meanwhile sees that the run was asked.
        self._asked.set()
        if self._driver is not None:
            self._driver.stop()

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Wait for the end and return the result, or raise the error that the run failed with.

        `TimeoutError`: it runs on. Ctrl-C ends the waiting, and the run goes on.

        - `timeout`: how long to wait, such as "5 min". None: as long as it takes.
        """
        if not self._ended.wait(seconds_or_none(timeout, "the timeout")):
            raise TimeoutError(f"job {self.job.name!r} has not ended within {timeout}; it is {self.status}")
        if self._error is not None:
            raise self._error
        assert self._result is not None, "a run ends with a result or an error"
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None:
            self.wait()
        else:
            # The block's own error is the one to report.
            self._ended.wait()

    def __repr__(self) -> str:
        return f"<Run of job {self.job.name!r}, {self.status}>"

    def _repr_html_(self) -> str:
        """Return the run for a notebook: what it is doing, the graph, where its state is, and its last batches."""
        batches = self.progress[-_SHOWN_BATCHES:]
        head = "".join(f"<th>{name}</th>" for name in ("batch", "sequence", "rows", "keys", "seconds", "commit ms"))
        rows = "".join(f"<tr>{_cells(batch)}</tr>" for batch in reversed(batches))
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if batches else ""
        return (
            f"<div><p><b>{html.escape(self.job.name)}</b>: {html.escape(str(self.status))}<br>"
            f"state at <code>{html.escape(str(Url(self.job.state)))}</code></p>"
            f"<pre>{html.escape(self.job.graph.text())}</pre>{table}</div>"
        )

    def _execute(self) -> None:
        try:
            driver = self._driver = self._make_driver()
            if self._asked.is_set():
                driver.stop()
            with ExitStack() as endpoints:
                for endpoint in self._serving():
                    endpoints.enter_context(endpoint)
                self._result = driver.execute()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()
            _going.discard(self)
            atexit.unregister(self._leave)

    def _leave(self) -> None:
        self.stop()
        self._ended.wait()


def _cells(batch: BatchProgress) -> str:
    label = batch.kind if batch.batch is None else f"{batch.batch:,}"
    numbers = (f"{batch.sequence:,}", f"{batch.rows:,}", f"{batch.keys:,}", f"{batch.seconds:.2f}")
    return "".join(f"<td>{html.escape(text)}</td>" for text in (label, *numbers, f"{batch.commit_ms:,.0f}"))


def _check_free(job: Job) -> None:
    """Refuse a second run beside one that this process has begun: its lease would refuse it too, though not before it starts."""
    from tidewheel._engine.job_lease import held_here

    for run in list(_going):
        if (run.job.name, run.job.state) == (job.name, job.state) and not run._asked.is_set():
            raise held_here(job.name, state=job.state)


def in_background(run: Run) -> Run:
    """Let a run go on in a thread of its own, and return it."""
    _going.add(run)
    # The thread ends with the process, and is told before: whoever leaves a REPL does not wait for ever.
    atexit.register(run._leave)
    threading.Thread(target=run._execute, name=f"tidewheel-run-{run.job.name}", daemon=True).start()
    return run


def in_this_thread(run: Run) -> RunResult:
    """Let a run go to its end here, and return its result. Signals reach a run that is in the main thread."""
    run._execute()
    return run.wait()


def run_on_spark(job: Job, **arguments: Unpack[RunArguments]) -> Run:
    """Return a run on Spark that is yet to begin; refuse a wrong graph or argument at once."""
    from tidewheel._spark.options import RunOptions

    plan = job.plan()
    chosen: dict[str, Any] = dict(arguments)
    port, at = chosen.pop("serve", None), chosen.pop("metrics", None)
    metrics = _metrics(job.name, at, seconds(chosen.pop("ready_within", _READY_WITHIN), "ready_within"))
    for name, least in (("backoff", 0), ("tick", _LEAST_TICK)):
        if name in chosen:
            chosen[name] = seconds(chosen[name], name, least)
    for name in ("allow_dropped_state", "allow_dropped_source", "drop_unpublished"):
        check_names(name, chosen.get(name, ()))
    tasks = chosen.get("parallelism")
    if tasks is not None and (not isinstance(tasks, int) or tasks < 1):
        raise ConfigError(
            f"the parallelism of job {job.name!r} is between 1 and its {job.n_shards} shards, not {tasks!r}"
        )
    options = RunOptions(**{**chosen, "conf": chosen.get("conf") or {}, "metrics": metrics})
    options.check_trigger()
    if not options.bounded:
        check_clock(job.graph)
    options.history_seconds  # noqa: B018  # It refuses what is no duration.
    if not options.take_over:
        _check_free(job)

    def driver() -> Driving:
        # Not before the run's own thread goes: importing Spark takes a moment.
        from tidewheel._spark.driver import Driver

        return Driver(job, plan, options)

    def serving() -> Iterable[AbstractContextManager[object]]:
        if port is not None:
            from tidewheel._engine.query_server import Endpoint

            yield Endpoint(job._lookup(), port)
        if metrics is not None:
            from tidewheel._observe.endpoint import MetricsEndpoint

            yield MetricsEndpoint(metrics, at)

    return Run(job, driver, serving)


def _metrics(job: str, at: int | str | None, ready_within: float) -> Metrics | None:
    if at is None:
        return None
    from tidewheel._observe.endpoint import place
    from tidewheel._observe.metrics import Metrics

    place(at)  # It refuses what is no place.
    return Metrics(job, ready_within=ready_within)
