"""What a run shows while it goes: a line per batch, for people or for machines."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from tidewheel._core.lost_terminal import survive_loss

if TYPE_CHECKING:
    from tidewheel._program.job import Job
    from tidewheel._spark.progress import BatchProgress, RunResult


class Progress(ABC):
    """Told what a run does, in the order it does it."""

    @abstractmethod
    def started(self, job: Job) -> None:
        """The run begins; Spark takes some seconds to be there."""

    @abstractmethod
    def batch(self, batch: BatchProgress) -> None:
        """A batch is committed and its output visible."""

    @abstractmethod
    def ended(self, result: RunResult) -> None:
        """The run is at its end."""


def progress_for(as_json: bool) -> Progress:
    """Return what suits the reader: JSON if asked for, colours on a terminal, plain lines otherwise."""
    return JsonProgress() if as_json else LineProgress(Console(highlight=False))


class JsonProgress(Progress):
    """One JSON object per batch, and nothing else."""

    def started(self, job: Job) -> None:
        """Say nothing."""

    def batch(self, batch: BatchProgress) -> None:
        """Print the object."""
        print(json.dumps(facts(batch)), flush=True)

    def ended(self, result: RunResult) -> None:
        """Say nothing: the exit status tells."""


class LineProgress(Progress):
    """A line per batch; aligned and coloured where the console is a terminal."""

    def __init__(self, console: Console) -> None:
        """Take the console."""
        self.console = console
        self.rows = self.batches = 0
        self.began = time.monotonic()

    def started(self, job: Job) -> None:
        """Say what is run."""
        self._print(
            f"{job.name}: state at {job.state}; Ctrl-C finishes the batch and stops, a second one aborts", "dim"
        )

    def batch(self, batch: BatchProgress) -> None:
        """Print the line."""
        self.rows += batch.rows
        self.batches += 1
        self._print(line(batch), "" if batch.batch is not None else "cyan")
        if batch.rejected:
            self._print(f"  {batch.rejected:,} records went to the dead-letter sink", "red")

    def ended(self, result: RunResult) -> None:
        """Sum up."""
        seconds = time.monotonic() - self.began
        how = "stopped as asked, start again to go on" if result.stopped else "done"
        counts = f"{self.batches:,} batches, {self.rows:,} rows in {seconds:.1f} s"
        self._print(
            f"{result.job}: {how}; {counts}, at sequence {result.sequence}", "yellow" if result.stopped else "green"
        )

    def _print(self, text: str, style: str) -> None:
        # SIGHUP ends the run in order; it must not fail for want of a reader.
        with survive_loss(self.console.file):
            self.console.print(Text(text, style=style), soft_wrap=True)
            self.console.file.flush()


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
