"""Run: a handle of a job that runs in this process."""

from __future__ import annotations

import atexit
import dataclasses
import html
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from tidewheel._core.urls import Url
from tidewheel._operators.time_checks import check_clock
from tidewheel._storage import absolute
from tidewheel._time.duration import Duration, seconds, seconds_or_none
from tidewheel.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from tidewheel._checkpoint.tools.state_reader import Found
    from tidewheel._observe.metrics import Metrics
    from tidewheel._program.job import Job
    from tidewheel._replay.switch_run import Accept
    from tidewheel._spark.options import RunOptions
    from tidewheel._spark.progress import BatchProgress, RunResult

_SHOWN_BATCHES = 10

Serving = Callable[[], Iterable[AbstractContextManager[object]]]
"""Starts the listeners of a run."""


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
    >>> run = job.start(until="end", parallelism=1)
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
        """The latest committed batches, up to a thousand, with the durations of their phases."""
        return [] if self._driver is None else self._driver.progress()

    def query(self, step: str, key: Any) -> Found:
        """Look up the committed state of one key, like `Job.query`. Raises `NotFound` before the first commit.

        - `step`: the name of a step with state.
        - `key`: the key.
        """
        try:
            return self.job.query(step, key)
        except NotFound as error:
            status = self.status
            if status.state != "starting" or self.job._lookup().has_commit():
                raise
            raise NotFound(
                f"job {self.job.name!r} is starting (at: {status.phase}), and nothing is committed yet: ask again when "
                '`run.status.state` is "running", or after `run.wait()` if the run ends by itself'
            ) from error

    def rescale(self, parallelism: int | None) -> None:
        """Change the number of tasks from the next batch on, like `Job.rescale`.

        - `parallelism`: the number of tasks, 1 to the job's `n_shards`. None removes the setting.
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


def chosen_options(method: str, options: RunOptions | None, old: Mapping[str, Any], **given: Any) -> RunOptions:
    """Return the options of a run: the arguments of `Job.run` take precedence over its `options`."""
    from tidewheel._spark.old_options import with_old_arguments
    from tidewheel._spark.options import RunOptions

    chosen = RunOptions() if options is None else options
    if not isinstance(chosen, RunOptions):
        raise ConfigError(f"options is a RunOptions, such as RunOptions(restarts=5), not {options!r}")
    if old:
        chosen = with_old_arguments(chosen, old, method)
    return dataclasses.replace(chosen, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class SwitchTerms:
    """How a run replaces the program of a running job."""

    last: int
    """How many batches before the newest commit it begins."""
    accept: Accept


def run_on_spark(job: Job, options: RunOptions, takes_over: SwitchTerms | Literal["on loss"] | None = None) -> Run:
    """Return a run on Spark that has not started; raise for an invalid graph.

    `takes_over`: how it takes over from another run; "on loss" is a standby, which waits until the other run is gone.
    """
    plan = job.plan()
    if options.state is not None:
        job.state = absolute(options.state)
    metrics = _metrics(job.name, options)
    if not options.bounded:
        check_clock(job.graph)
    if not options.take_over and takes_over is None:
        _check_free(job)

    def driver() -> Driving:
        # Import Spark in the run's own thread, because the import is slow.
        from tidewheel._spark.driver import Driver, terms_of

        if takes_over is None:
            return Driver(job, plan, options, metrics=metrics)
        if takes_over == "on loss":
            from tidewheel._engine.standby_run import StandbyRun

            standby = StandbyRun(job, plan, terms_of(options))
            driver = Driver(job, plan, options, standby, metrics=metrics)
            standby.stand_by, standby.warm = driver.stand_by, driver.warm
            return driver
        from tidewheel._replay.switch_run import SwitchRun

        switch = SwitchRun(job, plan, terms_of(options), takes_over.last, takes_over.accept)
        driver = Driver(job, plan, options, switch, metrics=metrics)
        switch.compute = driver.compute
        return driver

    def serving() -> Iterable[AbstractContextManager[object]]:
        if options.serve is not None:
            from tidewheel._engine.query_server import Endpoint

            yield Endpoint(job._lookup(), options.serve)
        if metrics is not None and options.metrics is not None:
            from tidewheel._observe.endpoint import MetricsEndpoint

            yield MetricsEndpoint(metrics, options.metrics)

    return Run(job, driver, serving)


def _metrics(job: str, options: RunOptions) -> Metrics | None:
    if options.metrics is None:
        return None
    from tidewheel._observe.metrics import Metrics

    return Metrics(job, ready_within=seconds(options.ready_within, "ready_within"))
