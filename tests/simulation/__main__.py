"""Play histories from the command line."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter

import pytest

from simulation import histories, patched
from simulation.histories import Outcome, shrunk
from simulation.sometimes import counts

_EVERY = 1000
"""After how many histories a long run reports."""


class _Played:
    """What a run has played."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        self.cpu: Counter[str] = Counter()
        self.wrong = 0
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begun

    def play(self, kind: str, seed: int, only: set[int] | None = None) -> Outcome:
        cpu = time.process_time()
        outcome = Outcome(kind, seed, only)
        self.cpu[kind] += time.process_time() - cpu  # type: ignore[assignment]
        self.kinds[kind] += 1
        self.steps[kind] += outcome.world.steps
        self.wrong += outcome.error is not None
        return outcome

    def __str__(self) -> str:
        kinds = ", ".join(
            f"{n} {kind} ({self.steps[kind]} steps, {self.steps[kind] / self.cpu[kind]:.0f} a second)"
            for kind, n in sorted(self.kinds.items())
        )
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return (
            f"{self.kinds.total()} histories, {self.wrong} went wrong: {kinds}; {self.cpu.total():.0f} s of CPU, "
            f"{self.seconds:.0f} s, {memory} MB"
        )


def main() -> int:
    """Play the histories that the arguments name; return 1 if one of them went wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation", description=histories.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = ", ".join([*histories.WORLDS, "suite"])
    parser.add_argument("history", help=f"KIND:SEED or KIND:FIRST:END, where the kind is one of {kinds}")
    parser.add_argument("--only", help="numbers of the faults that happen, such as 3,8,21; by default all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no history after this time")
    given = parser.parse_args()
    kind, first, *end = given.history.split(":")
    only = None if given.only is None else {int(number) for number in given.only.split(",")}
    patched.install(pytest.MonkeyPatch())
    played, seed = _Played(), int(first)
    with histories.quiet():
        while seed < (int(end[0]) if end else int(first) + 1) and played.seconds < given.seconds:
            outcome = played.play(histories.kind_of(seed) if kind == "suite" else kind, seed, only)
            seed += 1
            if outcome.error is not None:
                small = outcome if only is not None else shrunk(outcome)
                print(f"{outcome.command}\n{small.command}\n{small.story()}", flush=True)
            elif not end:
                print(outcome.story())
            if not seed % _EVERY:
                print(f"{time.strftime('%H:%M:%S', time.gmtime())} {kind}:{first}:{seed}: {played}", flush=True)
    print(f"{kind}:{first}:{seed}: {played}")
    for event, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  {count:9} {event}")
    return min(played.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
