"""The output of a run: phases of the start and a line per batch, for people or for machines."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.text import Text

from tidewheel._cli.console import Terminal
from tidewheel._cli.stored import when
from tidewheel._core.lost_terminal import survive_loss
from tidewheel._spark.progress import FIRST_BATCH

if TYPE_CHECKING:
    from types import TracebackType

    from tidewheel._program.job import Job
    from tidewheel._spark.progress import BatchProgress, RunResult


_FEW = 10
"""Up to this many rows per second the job was mostly waiting, so the rate would be misleading."""


class Progress(ABC):
    """Receives the events of a run, in order. A context manager: after its end nothing more is shown."""

    @abstractmethod
    def started(self, job: Job) -> None:
        """Handle the start of the run; Spark takes some seconds to start."""

    @abstractmethod
    def phase(self, phase: str | None) -> None:
        """Handle a new phase of the start; None at its end."""

    @abstractmethod
    def readers(self, readers: Mapping[str, str]) -> None:
        """Handle the list of readers of the sources, by source name."""

    @abstractmethod
    def batch(self, batch: BatchProgress) -> None:
        """Handle a batch that is committed and whose output is visible."""

    @abstractmethod
    def ended(self, result: RunResult) -> None:
        """Handle the end of the run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027  # most have nothing to clear away
        """Restore the terminal."""


def progress_for(as_json: bool) -> Progress:
    """Return the display for this output: JSON if requested, an updating line on a terminal, otherwise plain lines."""
    if as_json:
        return JsonProgress()
    console = Terminal(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        from tidewheel._cli.live_line import LiveProgress

        return LiveProgress(console)
    return LineProgress(console)


class JsonProgress(Progress):
    """One JSON object per batch, and nothing else."""

    def started(self, job: Job) -> None:
        """Print nothing."""

    def phase(self, phase: str | None) -> None:
        """Print nothing."""

    def readers(self, readers: Mapping[str, str]) -> None:
        """Print nothing."""

    def batch(self, batch: BatchProgress) -> None:
        """Print the object."""
        print(json.dumps(facts(batch)), flush=True)

    def ended(self, result: RunResult) -> None:
        """Print nothing: the exit status is the result."""


class LineProgress(Progress):
    """A line for each phase of the start, then a line per batch."""

    def __init__(self, console: Console) -> None:
        """Use this console."""
        self.console = console
        self.rows = self.batches = self.rejected = 0
        self.began = time.monotonic()
        self.start = Start()
        self.running_since: float | None = None
        """When the first batch began; None before that."""

    def started(self, job: Job) -> None:
        """Print the job's name."""
        self._print(
            f"{job.name}: state at {job.state}; Ctrl-C finishes the batch and stops, a second one aborts", "dim"
        )

    def phase(self, phase: str | None) -> None:
        """Print the phase of the start, and at its end the duration."""
        self._print(self._enter(phase), "dim")

    def readers(self, readers: Mapping[str, str]) -> None:
        """Print a line for each source."""
        for source, reader in readers.items():
            self._print(f"source {source}: reader: {reader}", "dim")

    def batch(self, batch: BatchProgress) -> None:
        """Print the batch as a line."""
        self._count(batch)
        self._print(line(batch), "" if batch.batch is not None else "cyan")
        if batch.rejected:
            records = "record" if batch.rejected == 1 else "records"
            self._print(f"  {batch.rejected:,} {records} went to the dead-letter sink", "red")

    def ended(self, result: RunResult) -> None:
        """Print a summary."""
        how = "stopped as asked, start again to continue" if result.stopped else "done"
        self._print(
            f"{result.job}: {how}; {self.counts()}{self._start()}, at sequence {result.sequence}",
            "yellow" if result.stopped else "green",
        )
        for operator, number in result.late.items():
            messages = "1 message" if number == 1 else f"{number:,} messages"
            self._print(
                f"{messages} came too late for {operator}, and no step reads them: give its late stream a sink",
                "yellow",
            )
        if result.holding and result.event_count and not result.stopped:
            self._print(_held_back(result), "dim")

    def counts(self) -> str:
        """Return the totals of the run so far."""
        began = self.began if self.running_since is None else self.running_since
        seconds = time.monotonic() - began
        batches = "1 batch" if self.batches == 1 else f"{self.batches:,} batches"
        rate = f" ({self.rows / seconds:,.0f} rows/s)" if self.rows > _FEW * seconds > 0 else ""
        text = f"{batches}, {self.rows:,} rows in {seconds:.1f} s{rate}"
        return f"{text}, {self.rejected:,} to the dead-letter sink" if self.rejected else text

    def _enter(self, phase: str | None) -> str:
        """Begin a phase of the start and return its text. Rows flow from the first batch on, which is a phase too."""
        if self.running_since is None and phase in (FIRST_BATCH, None):
            self.running_since = time.monotonic()
        return self.start.enter(phase)

    def _start(self) -> str:
        return "" if self.start.took is None else f", after a start of {self.start.took:.1f} s"

    def _count(self, batch: BatchProgress) -> None:
        self.rows += batch.rows
        self.batches += 1
        self.rejected += batch.rejected

    def _print(self, text: str, style: str) -> None:
        # SIGHUP ends the run normally; it must not fail because the terminal is gone.
        with survive_loss(self.console.file):
            self.console.print(Text(text, style=style), soft_wrap=True)
            self.console.file.flush()


class Start:
    """The phases of a start so far with their durations. The first batch is reported separately, because rows flow in it."""

    def __init__(self) -> None:
        self.current: str | None = None
        """The current phase of the start; None before and after the start."""
        self.took: float | None = None
        """The seconds from the start to the first batch; None until then."""
        self._since = 0.0
        self._seconds: dict[str, float] = {}

    def enter(self, phase: str | None) -> str:
        """Begin a phase; return a line about it, or about all phases at the end of the start."""
        now = time.monotonic()
        if self.current is not None:
            self._seconds[self.current] = self._seconds.get(self.current, 0.0) + now - self._since
        self.current, self._since = phase, now
        before = {name: seconds for name, seconds in self._seconds.items() if name != FIRST_BATCH}
        if self.took is None and phase in (FIRST_BATCH, None):
            self.took = sum(before.values())
        if phase is not None:
            return f"starting: {phase}"
        each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in before.items())
        first = f"; {FIRST_BATCH} {self._seconds[FIRST_BATCH]:.1f} s" if FIRST_BATCH in self._seconds else ""
        self._seconds = {}
        return f"started in {sum(before.values()):.1f} s: {each}{first}"

    def elapsed(self) -> float:
        """Return the seconds since the first phase began."""
        return sum(self._seconds.values()) + time.monotonic() - self._since


def _held_back(result: RunResult) -> str:
    """Return the work that the end of a run leaves for the next run, and the reason."""
    where = ", ".join(result.holding)
    if result.epoch is None:
        return (
            f"open in {where}: all results, because the clock of the data waits for the first timestamp of each input; "
            f"tidewheel status {result.job} names these inputs, and --until end does not wait for them"
        )
    return (
        f"open in {where}: results that end after {when(result.epoch)} UTC, the clock of the data; newer records advance the "
        "clock, and --until end emits all results"
    )


def line(batch: BatchProgress) -> str:
    """Return a batch as a line of text."""
    return (
        f"{batch.label:<10} {batch.rows:>11,} rows {batch.rate:>11,} rows/s {batch.keys:>11,} keys changed "
        f"{batch.commit_ms:>7,.0f} ms commit"
    )


def facts(batch: BatchProgress) -> dict[str, Any]:
    """Return a batch as plain values."""
    return {
        "sequence": batch.sequence,
        "batch": batch.batch,
        "rows": batch.rows,
        "rows_per_second": batch.rate,
        "keys": batch.keys,
        "seconds": round(batch.seconds, 6),
        "commit_ms": round(batch.commit_ms, 3),
        "parallelism": batch.parallelism,
        "rejected": batch.rejected,
    }
