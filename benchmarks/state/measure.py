"""What a contender hands back: its batches, and the two figures taken from them.

Only the standard library, because peers run in environments of their own.
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
    """One batch: its rows, its wall time, and where Spark says that time went."""

    rows: int
    milliseconds: float
    durations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """The run of one contender over one input.

    `rate`, where given, replaces the one computed from the batches: peers have no batches.
    `notes` say what was capped and which settings were chosen.
    """

    batches: Sequence[Batch]
    warmup: int
    notes: Sequence[str] = ()
    rate: float | None = None

    @property
    def measured(self) -> Sequence[Batch]:
        """The batches after warm-up; the last one where there are none."""
        return self.batches[self.warmup :] or self.batches[-1:]

    @property
    def rows_per_second(self) -> float:
        """The median over the measured batches, so that one disturbed batch does not decide."""
        if self.rate is not None:
            return self.rate
        return statistics.median(1000 * b.rows / b.milliseconds for b in self.measured)

    @property
    def batch_milliseconds(self) -> float:
        """The median batch time."""
        return statistics.median(b.milliseconds for b in self.measured)

    @property
    def sustained_rows_per_second(self) -> float:
        """All rows of the measured batches over all their time: slow batches count as long as they took."""
        return 1000 * sum(b.rows for b in self.measured) / sum(b.milliseconds for b in self.measured)

    @property
    def slowest_milliseconds(self) -> float:
        """The time of the slowest measured batch."""
        return max(b.milliseconds for b in self.measured)

    @property
    def durations(self) -> dict[str, float]:
        """The median of each of Spark's durations over the measured batches."""
        names = dict.fromkeys(name for b in self.measured for name in b.durations)
        return {n: statistics.median(b.durations.get(n, 0) for b in self.measured) for n in names}


@dataclass(frozen=True)
class Task:
    """What a contender's process is asked to do."""

    input: Path
    work: Path
    result: Path
    warmup: int
    limit: float
    variant: str

    def finish(self, measurement: Measurement) -> None:
        """Hand the measurement to the process that asked for it."""
        self.result.write_text(json.dumps(asdict(measurement)))


def task() -> Task:
    """The task given on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True, help="folder of files, one per batch")
    parser.add_argument("--work", type=Path, required=True, help="folder for state and checkpoints")
    parser.add_argument("--result", type=Path, required=True, help="file for the measurement")
    parser.add_argument("--warmup", type=int, default=2, help="batches that do not count")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which to stop")
    parser.add_argument("--variant", default="", help="which of the module's contenders")
    return Task(**vars(parser.parse_args()))


def read(path: Path) -> Measurement:
    """The measurement that a contender wrote."""
    found: dict[str, Any] = json.loads(path.read_text())
    batches = [Batch(**b) for b in found.pop("batches")]
    return Measurement(batches=batches, **found)
