"""Run: a handle of a job that runs in this process."""

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
"""The shortest tick in ns: with a shorter one, an idle job would only check the clock."""

Serving = Callable[[], Iterable[AbstractContextManager[object]]]
"""Starts the listeners of a run."""


class RunArguments(TypedDict, total=False):
    """The arguments of `Job.run` and `Job.start`; see `Job.run` for their meaning."""

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
    """The executor of a run: the Spark driver, or a replacement in tests."""

    @property
    def phase(self) -> str | None:
        """The current phase of the start; None once the job runs."""

    def progress(self) -> list[BatchProgress]:
        """Return the latest committed batches."""

    def execute(self) -> RunResult:
        """Run the job to its end."""

    def stop(self) -> None:
        """Finish and commit the current batch, then end. Can be called from any thread."""


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    >>> str(RunStatus("starting", phase="Spark"))
    'starting: Spark'
    """

    state: Literal["starting", "running", "stopped", "failed"]
    """`stopped`: the run ended normally, at its own end or on request; `RunResult.stopped` says which."""
    phase: str | None = None
    """The current phase while the run starts."""
    error: BaseException | None = None
    """The error that `Run.wait` raises after a failure."""

    def __str__(self) -> str:
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return ": ".join(part for part in (self.state, self.phase, error) if part)


_going: set[Run] = set()
"""The background runs of this process."""


class Run:
    """A job that runs in the background, as returned by `Job.start`.

    Every method can be called from any thread. As a context manager, a run is stopped and waited for at the end of the
    block. A run that is still active when the program exits is stopped in the same way.

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
        self._stop_requested = threading.Event()
        self._ended = threading.Event()
        self._result: RunResult | None = None
        self._error: BaseException | None = None

    @property
    def status(self) -> RunStatus:
        """The status of the run: starting, with the phase; running; stopped; or failed, with the error."""
        if self._error is not None:
            return RunStatus("failed", error=self._error)
        if self._ended.is_set():
            return RunStatus("stopped")
        phase = "checking" if self._driver is None else self._driver.phase
        return RunStatus("running") if phase is None else RunStatus("starting", phase)

    @property
    def progress(self) -> list[BatchProgress]:
        """The latest committed batches, up to a thousand, with the durations that Spark has reported so far."""
        return [] if self._driver is None else self._driver.progress()

    def query(self, operator: str, key: Any) -> Found:
        """Look up the committed state of one key, like `Job.query`. Raises `NotFound` before the first commit.

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
        """Change the number of tasks from the next batch on, like `Job.rescale`.

        - `parallelism`: the number of tasks, 1 to the job's `n_shards`.
        """
        self.job.rescale(parallelism)

    def stop(self) -> None:
        """Request the end of the run after its current batch is committed and published; `wait` waits for it."""
        # Set the flag first: a driver that is created in the meantime checks it.
        self._stop_requested.set()
        if self._driver is not None:
            self._driver.stop()

    def wait(self, timeout: Duration | None = None) -> RunResult:
        """Wait for the end and return the result, or raise the error that the run failed with.

        Raises `TimeoutError` if the run is still active. Ctrl-C ends the wait but not the run.

        - `timeout`: the maximum wait, such as "5 min". None waits until the run ends.
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
            # Report the error of the block, not the error of the run.
            self._ended.wait()

    def __repr__(self) -> str:
        return f"<Run of job {self.job.name!r}, {self.status}>"

    def _repr_html_(self) -> str:
        """Return the run for a notebook: its status, graph, state URL and latest batches."""
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
            if self._stop_requested.is_set():
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
    """Refuse a second run of a job in this process early. The lease would refuse it too, but only after Spark has started."""
    from tidewheel._engine.job_lease import held_here

    for run in list(_going):
        if (run.job.name, run.job.state) == (job.name, job.state) and not run._stop_requested.is_set():
            raise held_here(job.name, state=job.state)


def in_background(run: Run) -> Run:
    """Start a run in its own thread, and return it."""
    _going.add(run)
    # The daemon thread ends with the process. Stop the run first, so that leaving a REPL does not wait forever.
    atexit.register(run._leave)
    threading.Thread(target=run._execute, name=f"tidewheel-run-{run.job.name}", daemon=True).start()
    return run


def in_this_thread(run: Run) -> RunResult:
    """Execute a run in this thread and return its result. Signals reach a run in the main thread."""
    run._execute()
    return run.wait()


def run_on_spark(job: Job, **arguments: Unpack[RunArguments]) -> Run:
    """Return a run on Spark that has not started; raise for an invalid graph or argument."""
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
        # Import Spark in the run's own thread, because the import is slow.
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

    place(at)  # Raises if the URL is invalid.
    return Metrics(job, ready_within=ready_within)
