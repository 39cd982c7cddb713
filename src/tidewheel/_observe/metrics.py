"""Metrics: the figures of a process's runs in Prometheus format, computed from the same records as the history."""

from __future__ import annotations

import bisect
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tidewheel._observe.metric_list import METRICS, PREFIX
from tidewheel._observe.records import Behind, CommitRecord

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histograms, in seconds."""

_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
_ALIVE_SECONDS = 60.0
_COMMON = ("job_name", "node")

Labels = tuple[str, ...]


class _Times:
    """One histogram."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        total, found = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class Metrics(Collector):
    """The metrics of one job in one process, over all its runs there; and its health and readiness.

    The run calls `committed` and similar methods, and each scrape calls `collect`; none of them blocks.
    """

    def __init__(
        self,
        job: str,
        node: str = "",
        *,
        ready_within: float = 300.0,
        clock: Callable[[], float] = time.time,
        ticking: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use the job, its node in a fleet, and the maximum age in seconds of the last activity of a ready job."""
        self._common = (job, node)
        self._ready_within, self._clock, self._ticking = ready_within, clock, ticking
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {metric.name: {} for metric in METRICS}
        self._times: dict[str, dict[Labels, _Times]] = {m.name: {} for m in METRICS if m.kind == "histogram"}
        self._epoch: int | None = None
        self._run: Labels | None = None
        self._beat = self._ticking()
        self._worked: float | None = None
        self._starting = True
        self.behind: Callable[[], Mapping[str, Mapping[str, Behind]]] = dict
        self.local: str | None = None
        """The folder of local copies on this machine."""
        self.inbox: str | None = None
        """The name of the source that is a fleet's inbox."""
        self.registry = CollectorRegistry()
        self.registry.register(self)
        for name in ("restarts", "fenced", "deltas_written", "delta_bytes", "snapshots_written", "snapshot_bytes"):
            self._add(name, 0)
        self._set("run_claimed", 0)

    # Called by the run.

    def claimed(self, run: str, version: str) -> None:
        """Record that a run has claimed the job."""
        with self._lock:
            self._run = (run, socket.gethostname(), version)
            self._set("run_claimed", 1)
            self._worked = self._ticking()

    def ended(self) -> None:
        """Record that the run has ended."""
        with self._lock:
            self._run = None
            self._set("run_claimed", 0)
            self._starting = True

    def turned(self, waiting: bool = False) -> None:
        """Record an iteration of the run's loop; `waiting`: its sources have no unread data."""
        self._beat = self._ticking()
        self._starting = False
        if waiting:
            self._worked = self._beat

    def failed(self, error: BaseException, *, restarted: bool, fenced: bool) -> None:
        """Record that a batch or the run has failed."""
        with self._lock:
            self._add("failures", 1, type(error).__name__)
            self._add("restarts", int(restarted))
            self._add("fenced", int(fenced))
            self._starting = restarted

    def refresh_failed(self, table: str) -> None:
        """Record that a reference table could not be loaded again."""
        with self._lock:
            self._add("table_refresh_failures", 1, table)

    def committed(self, record: CommitRecord) -> None:
        """Record the figures of a commit."""
        with self._lock:
            self._worked = self._ticking()
            self._steps(record)
            self._add("commits", 1, record.kind)
            self._set("events", record.events)
            self._observe("batch_seconds", record.seconds)
            for phase, seconds in record.phases.items():
                self._observe("batch_phase_seconds", seconds, phase)
            self._set("batch_tasks", record.tasks)
            self._set("parallelism", record.parallelism)
            self._set("last_commit_timestamp_seconds", record.at / 1e9)
            self._set("last_commit_sequence", record.sequence)
            self._epoch = record.epoch
            self._set("state_skew_ratio", record.skew)
            self._add("deltas_written", record.deltas)
            self._add("delta_bytes", record.delta_bytes)
            self._add("snapshots_written", record.snapshots)
            self._add("snapshot_bytes", record.snapshot_bytes)
            self._add("caught_up_bytes", record.caught_up_bytes)
            self._add("shard_visits", record.visits)
            self._add("stale_shard_visits", record.stale_visits)
            for sink, published in record.published.items():
                self._add("sink_rows_published", published.rows, sink)
                self._observe("sink_publish_seconds", published.seconds, sink)
            for cell, version in record.cells.items():
                self._set("cell_version", version, cell)
            for table, (version, rows) in record.tables.items():
                self._set("table_version", version, table)
                self._set("table_rows", rows, table)
            if record.held is not None:
                self._set("shards_held", record.held)

    def _steps(self, record: CommitRecord) -> None:
        counters: Iterable[tuple[str, Mapping[str, float]]] = (
            ("step_rows_in", record.rows_in),
            ("step_rows_out", record.rows_out),
            ("step_busy_seconds", record.busy),
            ("step_late_rows", record.late),
            ("step_dropped_rows", record.dropped),
            ("step_dead_letters", record.dead),
            ("step_failed_expectations", record.failed),
            ("step_keys_changed", record.changed),
        )
        for name, numbers in counters:
            for step, number in numbers.items():
                self._add(name, number, step)
        for step, called in record.called.items():
            self._add("step_calls", called.calls, step)
            self._add("step_call_failures", called.failures, step)
            self._add("step_call_seconds", called.milliseconds / 1e3, step)
        for step, stored in record.stored.items():
            self._set("step_state_keys", stored.keys, step)
            self._set("step_state_bytes", stored.bytes, step)

    # Health.

    def alive(self) -> str | None:
        """Return why the process should be ended; None if it starts or its loop is active."""
        age = self._ticking() - self._beat
        if self._starting or age <= _ALIVE_SECONDS:
            return None
        return f"the run's loop has not turned for {age:.0f} s"

    def ready(self) -> str | None:
        """Return why the job does not work; None if it is claimed and has recently committed or waited for data."""
        if self._run is None or self._worked is None:
            return "no run has claimed the job"
        age = self._ticking() - self._worked
        return (
            None
            if age <= self._ready_within
            else f"the last commit was {age:.0f} s ago, limit {self._ready_within:g} s"
        )

    # Called by Prometheus.

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that has a value."""
        with self._lock:
            self._look()
            families = [self._family(metric.name, metric.kind, metric.help, metric.labels) for metric in METRICS]
        yield from (family for family in families if family.samples)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the names need no check for duplicates."""
        return iter(())

    def _look(self) -> None:
        """Set the figures that are known only at the time of the scrape."""
        for name in ("source_rows_behind", "source_files_behind", "source_seconds_behind"):
            self._values[PREFIX + name].clear()
        behind = self.behind()
        for source, partitions in behind.items():
            for partition, left in partitions.items():
                if left.files is None:
                    self._set("source_rows_behind", left.rows, source, partition)
                else:
                    self._set("source_files_behind", left.files, source, partition)
                self._set("source_seconds_behind", left.seconds, source, partition)
        if self.inbox is not None and self.inbox in behind:
            self._set("inbox_backlog_rows", sum(left.rows for left in behind[self.inbox].values()))
        if self._epoch is not None:
            self._set("data_clock_timestamp_seconds", self._epoch / 1e9)
            self._set("data_clock_behind_seconds", self._clock() - self._epoch / 1e9)
        if self.local is not None:
            try:
                disk = os.statvfs(self.local)
            except OSError:
                return
            self._set("local_disk_free_bytes", disk.f_bavail * disk.f_frsize)
            self._set("local_disk_size_bytes", disk.f_blocks * disk.f_frsize)

    def _family(self, name: str, kind: str, text: str, labels: Labels) -> Metric:
        if kind == "info":
            info = InfoMetricFamily(name, text, labels=_COMMON)
            if self._run is not None:
                info.add_metric(self._common, dict(zip(labels, self._run, strict=True)))
            return info
        if kind == "histogram":
            histogram = HistogramMetricFamily(name, text, labels=(*_COMMON, *labels))
            for values, times in self._times[name].items():
                histogram.add_metric((*self._common, *values), times.buckets(), times.sum)
            return histogram
        family: CounterMetricFamily | GaugeMetricFamily = _FAMILIES[kind](name, text, labels=(*_COMMON, *labels))
        for values, number in self._values[name].items():
            family.add_metric((*self._common, *values), number)
        return family

    def _add(self, name: str, number: float, *labels: str) -> None:
        values = self._values[PREFIX + name]
        values[labels] = values.get(labels, 0) + number

    def _set(self, name: str, number: float, *labels: str) -> None:
        self._values[PREFIX + name][labels] = number

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        self._times[PREFIX + name].setdefault(labels, _Times()).add(seconds)
