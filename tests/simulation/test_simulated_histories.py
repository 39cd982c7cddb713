"""Histories of the code that ships, in a simulated world, each from one seed.

`TIDEWHEEL_SIMULATION=job:17` plays one history again and shows its story; `job:0:5000` plays a range of them in the slow test.
A history depends on nothing but its seed.
"""

from __future__ import annotations

import logging
import os

import pytest

from simulation import patched, primitives
from simulation.cell_world import CellWorld
from simulation.job_world import JobWorld
from simulation.sometimes import counts
from simulation.world import World
from tidewheel._cells import lease
from tidewheel._checkpoint import garbage
from tidewheel._engine import plan_sinks
from tidewheel._engine.commit import next_manifest
from tidewheel._engine.run import ChainRun
from tidewheel._storage.chain import Chain

WORLDS: dict[str, type[World]] = {"job": JobWorld, "cell": CellWorld}
IN_THE_SUITE = {"job": 120, "cell": 500}
NETWORK = (
    "request lost",
    "request repeated",
    "request took effect after it had failed",
    "change done and answered with an error",
    "listing changed between two pages",
    "process paused",
    "process killed",
    "clock jumped",
    "host cut off",
)
SOMETIMES = {
    "job": (
        *NETWORK,
        "claim over a run that had not ended",
        "collection deleted files",
        "commit found to be made after its answer was lost",
        "forked",
        "late writer created a record below the chain",
        "publication found to be there already",
        "restored",
        "run ended with FencedError",
        "run ended with HeldError",
        "run published what an earlier one had left",
        "run took back void output",
        "savepoint made",
        "state read while the job runs",
        "table had the rows already",
    ),
    "cell": (
        *NETWORK,
        "exchange lost its race",
        "holder found that its lease had lapsed",
        "lease passed on",
        "write of unknown outcome",
    ),
}


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """Put the simulation in place of time, threads, network and random numbers."""
    patched.install(monkeypatch)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play(kind: str, seed: int) -> World:
    """Play one history; on a failure, show its seed and its story."""
    world = WORLDS[kind](seed)
    try:
        world.play()
    except BaseException as error:
        story = "\n  ".join(world.log)
        raise AssertionError(f"TIDEWHEEL_SIMULATION={kind}:{seed}: {error!r}, after\n  {story}") from error
    return world


@pytest.mark.parametrize("kind", WORLDS)
def test_nothing_is_lost_doubled_or_stuck_in_any_history(kind):
    """And each of the events that make such a test worth its time has occurred."""
    counts.clear()
    for seed in range(IN_THE_SUITE[kind]):
        play(kind, seed)
    assert [event for event in SOMETIMES[kind] if not counts[event]] == []


def test_a_history_depends_on_its_seed_alone():
    first, second, other = play("job", 3), play("job", 3), play("job", 4)
    assert (first.steps, first.log) == (second.steps, second.log)
    assert first.log != other.log


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_stuck_in_thousands_of_histories():
    kind, first, *last = os.environ.get("TIDEWHEEL_SIMULATION", "job:10000:12000").split(":")
    for seed in range(int(first), int(last[0]) if last else int(first) + 1):
        play(kind, seed)


def found(kind: str, seeds: range) -> str:
    """Return what the first history that goes wrong reports; empty if none does."""
    for seed in seeds:
        try:
            play(kind, seed)
        except AssertionError as error:
            return str(error)
    return ""


def test_it_finds_a_collector_that_does_not_read_pins_and_checkpoints(monkeypatch):
    monkeypatch.setattr(garbage, "collectable", lambda listing, *_: list(listing))
    assert "needs it" in found("job", range(20))


def test_it_finds_a_run_that_publishes_nothing(monkeypatch):
    monkeypatch.setattr("tidewheel._engine.run.publish_output", lambda *_: None)
    assert "was made before" in found("job", range(20))


def test_it_finds_a_run_that_takes_nothing_back(monkeypatch):
    monkeypatch.setattr("tidewheel._engine.run.take_back", lambda *_: ())
    assert "must have" in found("job", range(40))


def test_it_finds_an_append_that_overwrites(monkeypatch):
    """A compare-and-exchange that does not compare."""

    def append(self: Chain, number: int, data: bytes) -> bool:
        self._store.write(f"{number:020}.rec", data)
        return True

    monkeypatch.setattr(Chain, "append", append)
    assert found("job", range(20))
    assert found("cell", range(20))


def test_it_finds_a_lease_by_wall_clock(monkeypatch):
    defaults = {**lease.Lease.__init__.__kwdefaults__, "clock": primitives.clock.time}
    monkeypatch.setattr(lease.Lease.__init__, "__kwdefaults__", defaults)
    assert "at once" in found("cell", range(200))


def test_it_finds_a_lease_that_others_do_not_wait_for(monkeypatch):
    monkeypatch.setattr("tidewheel._cells.lease.Lease._free_in", lambda self, snapshot: 0.0)
    assert "at once" in found("cell", range(60))


def test_it_finds_output_that_is_published_before_its_commit(monkeypatch):
    real = ChainRun.commit

    def commit(self, spec, reports, kind, spark, *rest, **more):
        if kind == "batch":
            early = next_manifest(self.head, spec, self.plan, reports, kind, rest[0] if rest else None, None, None)
            plan_sinks.publish_output(self.plan, self.folder, early, spark)
        return real(self, spec, reports, kind, spark, *rest, **more)

    monkeypatch.setattr(ChainRun, "commit", commit)
    assert "no commit says so" in found("job", range(10))
