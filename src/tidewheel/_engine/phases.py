"""The time of a batch by phase, and of publishing by sink."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tidewheel._engine.report import Report
from tidewheel._observe.tracing import Span


class Phases:
    """A stopwatch that goes through the phases of a batch, one after the other."""

    def __init__(self) -> None:
        """Begin now."""
        self.began = self._since = time.perf_counter()
        self._at = time.time_ns()
        self._spans: list[Span] = []
        self.reports: Sequence[Report] = ()
        """What the tasks reported, once they are done."""
        self.seconds: dict[str, float] = {}
        """By phase."""
        self.sinks: dict[str, float] = {}
        """By sink, the seconds of its publishing."""
        self.tasks: int | None = None
        """The number of tasks of the batch; None: its parallelism."""
        self.ran_in = ""
        """Where the tasks ran, and whether messages were shuffled."""

    def done(self, phase: str) -> None:
        """Put the time since the last phase under this one's name."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._spans.append(Span(phase, self._wall(self._since), self._wall(now)))
        self._since = now

    def begun_earlier(self, seconds: float, phase: str) -> None:
        """Count the seconds before as part of the batch, under the name of a phase."""
        self.began -= seconds
        self._since -= seconds
        self._at -= round(seconds * 1e9)
        self.done(phase)

    @property
    def milliseconds(self) -> dict[str, int]:
        """The time of each phase in ms."""
        return {phase: round(seconds * 1000) for phase, seconds in self.seconds.items()}

    def published(self, sink: str, seconds: float) -> None:
        """Note how long a sink took."""
        self.sinks[sink] = self.sinks.get(sink, 0.0) + seconds

    def spans(self) -> list[Span]:
        """Return the phases as parts of a trace, the tasks inside of theirs."""
        tasks = [_task_span(report) for report in self.reports if report.began]
        return [phase._replace(parts=tasks) if phase.name == "tasks" else phase for phase in self._spans]

    def _wall(self, moment: float) -> int:
        return self._at + round((moment - self.began) * 1e9)

    @property
    def total(self) -> float:
        """Seconds from the beginning to the last phase that is done."""
        return self._since - self.began


def _task_span(report: Report) -> Span:
    about = {"tidewheel.level": report.level, "tidewheel.partition": report.partition}
    about["tidewheel.rows"] = sum(number for name, number in report.counts.items() if "/" not in name)
    return Span("task", report.began, report.began + round(report.took * 1e9), about)
