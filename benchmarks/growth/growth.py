"""The result of a measurement: a cost at three sizes, and the goal."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Growth:
    """A cost at several sizes of one thing."""

    key: str
    """The name in the JSON object; its number is that of the largest size unless `figure` gives another."""
    title: str
    """What is measured."""
    by: str
    """What the sizes count."""
    unit: str
    cases: dict[int, float]
    """The cost at each size."""
    limit: float
    """What the number may be at most."""
    figure: float | None = None
    more: dict[str, float] = field(default_factory=dict)
    """Further numbers for the JSON object."""

    @property
    def number(self) -> float:
        """Return the number that is compared with the limit."""
        return self.cases[max(self.cases)] if self.figure is None else self.figure


def hand_over(*growths: Growth) -> None:
    """Print the measurement as one line, for `run.py`."""
    print(json.dumps([asdict(growth) for growth in growths]))


def milliseconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the duration of the work, the best of several rounds: other load on the machine only makes rounds slower."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return round(best * 1000, 2)
