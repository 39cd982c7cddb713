"""Report a run to its history, to the metrics of its process, to logs and to traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tidewheel._connectors.source import Source, Unread
from tidewheel._core import logs
from tidewheel._engine.continued_sources import job_sources
from tidewheel._engine.datasets import datasets_of
from tidewheel._engine.figures import CommitListener, Figures, operator_records
from tidewheel._engine.phases import Phases
from tidewheel._observe.lag import LagMonitor
from tidewheel._observe.lineage import Lineage, is_configured
from tidewheel._observe.records import Behind
from tidewheel._observe.run_history import RunHistory
from tidewheel._observe.tracing import Tracing
from tidewheel.errors import FencedError, HeldError

if TYPE_CHECKING:
    import pyarrow as pa

    from tidewheel._engine.run import ChainRun
    from tidewheel._observe.metrics import Metrics

_LOG = logs.logger(__name__)


class RunReporter:
    """Begins and ends with a run. No method of it raises, and only `close` waits: for the last history and lineage."""

    def __init__(
        self,
        run: ChainRun,
        *,
        node: str = "",
        history_seconds: float | None = None,
        metrics: Metrics | None = None,
        local: str | None = None,
        unread: Callable[[str, Source], Mapping[str, Unread] | None] = lambda name, source: None,
    ) -> None:
        """Take the run, its node in a fleet, how long its history stays (None: there is none), and the process's metrics.

        `local` is the folder of local copies on this machine. `unread` returns the unread amount of a source, or None to ask the
        source itself.
        """
        self._run, self._node, self._metrics = run, node, metrics
        self._unread_here = unread
        self._tracing = Tracing(run.job.name, run.token, node)
        self.context = logs.RunContext(run.job.name, run.token, node, self._sequence, self._tracing.trace_id)
        """For the logs of the run's threads."""
        logs.begin(self.context)
        self._history: RunHistory | None = None
        listeners: list[CommitListener] = []
        if history_seconds is not None:
            self._history = RunHistory(run.store, run.job.name, run.token, node=node, keep_seconds=history_seconds)
            listeners.append(self._history)
        if metrics is not None:
            listeners.append(metrics)
            metrics.local = local
            run.tables.failed = metrics.refresh_failed
        self._figures = Figures(run.plan, listeners, node)
        self._lag: LagMonitor | None = None
        self._lineage: Lineage | None = None
        if listeners:
            run.figures = self._figures

    def started(self, columns: Mapping[str, pa.Schema] | None = None) -> None:
        """The run has the job. `columns` are those of its sources, by name."""
        from tidewheel import __version__

        self._begin_lineage(columns or {}, __version__)

        # Only now, because the stored state may have changed the plan.
        self._figures.plan = self._run.plan
        if self._run.figures is not None:
            monitor = self._lag = LagMonitor(self._looks(), changed=self._waited)
            self._figures.behind = lambda: monitor.behind
            self._figures.reported = monitor.look_soon
            monitor.start()
        if self._history is not None:
            self._history.started(operator_records(self._run.plan), self._run.job.n_shards, __version__)
            self._history.recall_sizes(self._figures.recall)
        if self._metrics is not None:
            self._metrics.behind = self._figures.behind
            self._metrics.inbox = next(
                (name for name, source in job_sources(self._run.plan).items() if source.kind == "inbox"), None
            )
            self._metrics.claimed(self._run.token, __version__)
        _LOG.info("run %s has the job, from commit %s on", self._run.token, self._sequence())

    def _begin_lineage(self, columns: Mapping[str, pa.Schema], version: str) -> None:
        try:
            if is_configured():
                self._lineage = Lineage(self._run.job.name, version, datasets_of(self._run.plan, columns))
        except Exception:
            _LOG.exception("the run has no lineage")

    @contextmanager
    def batch(self, number: int | None) -> Iterator[Phases]:
        """Measure and trace the batch that runs in the block; log records of the block belong to this run."""
        with logs.of_run(self.context), self._tracing.batch(number) as trace:
            phases = Phases()
            try:
                yield phases
            finally:
                trace.spans = phases.spans()
                trace.attributes = {"tidewheel.sequence": self._sequence() or 0}
        if self._lineage is not None:
            self._lineage.committed()

    def turned(self, waiting: bool = False) -> None:
        """The run's loop has turned; `waiting`: its sources have nothing that it has not read."""
        if self._metrics is not None:
            self._metrics.turned(waiting)

    def failed(self, error: BaseException, batch: int | None = None, *, restarted: bool = False) -> None:
        """Report a failure of the run; `restarted` if the run continues from the last commit."""
        # A run that was refused because another has the job is no event of the job.
        if isinstance(error, HeldError):
            return
        fenced = isinstance(error, FencedError)
        try:
            if self._metrics is not None:
                self._metrics.failed(error, restarted=restarted, fenced=fenced)
            # In a fleet shards change hands every now and then, and that is no failure.
            if self._history is not None and not (fenced and self._node):
                self._history.failed(error, batch, restarted=restarted)
            if self._lineage is not None and not restarted:
                self._lineage.failed(error)
        except Exception:
            _LOG.exception("an error cannot be noted")

    def close(self) -> None:
        """The run is over."""
        _LOG.info("run %s is over, at commit %s", self._run.token, self._sequence())
        logs.end(self.context)
        if self._lag is not None:
            self._lag.close()
        if self._metrics is not None:
            self._metrics.ended()
        if self._lineage is not None:
            self._lineage.close()
        if self._history is not None:
            self._history.close(self._figures.sizes.by_shard)

    @property
    def waited(self) -> float:
        """How many seconds the oldest unread data has waited at the last measurement; 0 if that is unknown."""
        behind = {} if self._lag is None else self._lag.behind
        return max((each.seconds for parts in behind.values() for each in parts.values()), default=0.0)

    def _waited(self, behind: Mapping[str, Mapping[str, Behind]]) -> None:
        # Nodes of a fleet commit while they are idle too, and each has sources of its own.
        if self._history is not None and not self._node:
            self._history.waited(behind)

    def _sequence(self) -> int | None:
        head = getattr(self._run, "head", None)
        return None if head is None else head.sequence

    def _looks(self) -> dict[str, Callable[[], Mapping[str, Unread]]]:
        return {name: partial(self._unread, name, source) for name, source in job_sources(self._run.plan).items()}

    def _unread(self, name: str, source: Source) -> Mapping[str, Unread]:
        position = self._run.head.source_offsets.get(name)
        if position is None:
            return {}
        unread = self._unread_here(name, source)
        return source.unread(position) if unread is None else unread
