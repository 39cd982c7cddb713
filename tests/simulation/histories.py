"""Play histories by their seeds, and shrink one that goes wrong to few faults.

python -m simulation job:17            play one history again; if it goes wrong, shrink it and show its story
python -m simulation fleet:0:1000      play a range
python -m simulation suite:0:2000      play a range of all kinds, in the proportion of the suite: seed 17 is a history of jobs
python -m simulation job:17 --only 3,8,21     play a history with these of its faults alone
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from simulation.cell_world import CellWorld
from simulation.fleet_world import FleetWorld
from simulation.job_world import JobWorld
from simulation.world import World

WORLDS: dict[str, type[World]] = {"job": JobWorld, "cell": CellWorld, "fleet": FleetWorld}
IN_THE_SUITE = {"job": 300, "cell": 1500, "fleet": 200}
"""How many histories of each kind a run of the suite plays."""
SHRINKING_PLAYS = 80
"""How often a history that goes wrong is played again to find the faults that it needs."""


def kind_of(seed: int) -> str:
    """Return the kind of a history in a mixed range: of 20 seeds in a row, 15 are of cells, 2 of fleets and 3 of jobs."""
    place = seed % 20
    return "cell" if place < 15 else "fleet" if place < 17 else "job"


class Outcome:
    """A history that was played."""

    def __init__(self, kind: str, seed: int, only: Collection[int] | None = None) -> None:
        """Play it."""
        self.kind, self.seed, self.only = kind, seed, only
        self.error: BaseException | None = None
        self.world = WORLDS[kind](seed, only)
        try:
            self.world.play()
        except Exception as error:
            self.error = error

    @property
    def command(self) -> str:
        """The command that plays it again."""
        only = "" if self.only is None else " --only " + (",".join(map(str, sorted(self.only))) or "0")
        return f"make simulate HISTORY='{self.kind}:{self.seed}{only}'"

    def story(self) -> str:
        """Return what happened."""
        lines = "\n  ".join(self.world.log)
        return f"{self.kind}:{self.seed}: {self.error!r}\nwith {self.world.struck} faults, after\n  {lines}"


def shrunk(outcome: Outcome, plays: int = SHRINKING_PLAYS) -> Outcome:
    """Return a history of the same seed that goes wrong with as few faults as so many plays can find."""
    best = outcome

    def fails(only: Collection[int]) -> bool:
        nonlocal best
        tried = Outcome(outcome.kind, outcome.seed, only)
        if tried.error is not None:
            best = tried
        return tried.error is not None

    fewest(range(1, outcome.world.faults + 1), fails, plays)
    return best


def fewest(numbers: Collection[int], fails: Callable[[Collection[int]], bool], plays: int) -> list[int]:
    """Return numbers with which something still fails, leaving out ever smaller parts of them.

    >>> fewest(range(20), lambda kept: {3, 11} <= set(kept), 100)
    [3, 11]
    """
    kept, size = list(numbers), len(numbers)
    if plays and fails([]):
        return []
    while size:
        begin = 0
        while begin < len(kept):
            if not plays:
                return kept
            plays -= 1
            fewer = kept[:begin] + kept[begin + size :]
            if fails(fewer):
                kept = fewer
            else:
                begin += size
        size = min(size // 2, len(kept)) if size > 1 else 0
    return kept


def play(kind: str, seed: int) -> World:
    """Play one history; if it goes wrong, raise with a shrunk one, its story, and the command to play it again."""
    outcome = Outcome(kind, seed)
    if outcome.error is not None:
        small = shrunk(outcome)
        raise AssertionError(
            f"{kind}:{seed} goes wrong. {outcome.command}\nWith fewer faults: {small.command}\n{small.story()}"
        ) from small.error
    return outcome.world


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing, because logging is part of what is simulated, and collect garbage less often.

    Histories leave millions of short-lived objects. With Python's thresholds the collector, which looks at all imported
    modules each time, takes a sixth of the time.
    """
    thresholds = gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        logging.disable(logging.NOTSET)
