"""Play histories from the command line."""

from __future__ import annotations

import argparse
import sys
import time

import pytest

from simulation import histories, patched
from simulation.histories import Outcome, shrunk
from simulation.sometimes import counts


def main() -> int:
    """Play the histories that the arguments name; return how many went wrong."""
    parser = argparse.ArgumentParser(prog="python -m simulation", description=histories.__doc__)
    parser.add_argument("history", help="KIND:SEED or KIND:FIRST:END, where the kind is " + ", ".join(histories.WORLDS))
    parser.add_argument("--only", help="numbers of the faults that happen, such as 3,8,21; by default all")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no history after this time")
    given = parser.parse_args()
    kind, first, *end = given.history.split(":")
    only = None if given.only is None else {int(number) for number in given.only.split(",")}
    patched.install(pytest.MonkeyPatch())
    begun, cpu, steps, wrong, played = time.monotonic(), time.process_time(), 0, 0, 0
    with histories.quiet():
        for seed in range(int(first), int(end[0]) if end else int(first) + 1):
            if time.monotonic() - begun > given.seconds:
                break
            outcome = Outcome(kind, seed, only)
            played, steps = played + 1, steps + outcome.world.steps
            if outcome.error is not None:
                wrong += 1
                small = outcome if only is not None else shrunk(outcome)
                print(f"{outcome.command}\n{small.command}\n{small.story()}", flush=True)
            elif not end:
                print(outcome.story())
    cpu = time.process_time() - cpu
    print(
        f"{played} histories from {kind}:{first}, {wrong} went wrong; {steps} steps in {cpu:.1f} s of CPU, "
        f"{steps / cpu:.0f} a second"
    )
    for event, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  {count:9} {event}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
