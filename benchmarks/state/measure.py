"""The result of a contender: its batches, and the figures derived from them.

This module uses only the standard library, because peers run in their own environments.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Batch:
    """One batch: its rows, its wall time, and the parts of that time that Spark reports."""

    rows: int
    milliseconds: float
    durations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """The run of one contender over one input.

    `rate` replaces the rate that is computed from the batches: peers have no batches. `notes` describe limits and settings.
    """

    batches: Sequence[Batch]
    warmup: int
    notes: Sequence[str] = ()
    rate: float | None = None

    @property
    def measured(self) -> Sequence[Batch]:
        """Return the batches after the warm-up; the last batch if there are none."""
        return self.batches[self.warmup :] or self.batches[-1:]

    @property
    def rows_per_second(self) -> float:
        """Return the median over the measured batches, so that one disturbed batch does not decide."""
        if self.rate is not None:
            return self.rate
        return statistics.median(1000 * b.rows / b.milliseconds for b in self.measured)

    @property
    def batch_milliseconds(self) -> float:
        """Return the median batch time."""
        return statistics.median(b.milliseconds for b in self.measured)

    @property
    def sustained_rows_per_second(self) -> float:
        """Return all rows of the measured batches divided by all their time, so that slow batches count fully."""
        return 1000 * sum(b.rows for b in self.measured) / sum(b.milliseconds for b in self.measured)

    @property
    def slowest_milliseconds(self) -> float:
        """Return the time of the slowest measured batch."""
        return max(b.milliseconds for b in self.measured)

    @property
    def durations(self) -> dict[str, float]:
        """Return the median of each of Spark's durations over the measured batches."""
        names = dict.fromkeys(name for b in self.measured for name in b.durations)
        return {n: statistics.median(b.durations.get(n, 0) for b in self.measured) for n in names}


@dataclass(frozen=True)
class Task:
    """The work of a contender's process."""

    input: Path
    work: Path
    result: Path
    warmup: int
    limit: float
    variant: str

    def finish(self, measurement: Measurement) -> None:
        """Write the measurement for the parent process."""
        self.result.write_text(json.dumps(asdict(measurement)))


def task() -> Task:
    """Return the task from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True, help="folder of files, one per batch")
    parser.add_argument("--work", type=Path, required=True, help="folder for state and checkpoints")
    parser.add_argument("--result", type=Path, required=True, help="file for the measurement")
    parser.add_argument("--warmup", type=int, default=2, help="batches that do not count")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which to stop")
    parser.add_argument("--variant", default="", help="which of the module's contenders")
    return Task(**vars(parser.parse_args()))


def read(path: Path) -> Measurement:
    """Return the measurement that a contender wrote."""
    found: dict[str, Any] = json.loads(path.read_text())
    batches = [Batch(**b) for b in found.pop("batches")]
    return Measurement(batches=batches, **found)
