"""Histories of the code that ships, in a simulated world, each from one seed.

A history depends on nothing but its seed. `make simulate HISTORY=job:17` plays one again.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from simulation import patched
from simulation.histories import IN_THE_SUITE, Outcome, kind_of, play, quiet, shrunk
from simulation.plants import PLANTS
from simulation.sometimes import SOMETIMES, counts


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """Put the simulation in place of time, threads, network and random numbers."""
    patched.install(monkeypatch)
    with quiet():
        yield


@pytest.mark.parametrize("kind", IN_THE_SUITE)
def test_nothing_is_lost_doubled_or_stuck_in_any_history(kind):
    """And each of the events that make such a test worth its time has occurred."""
    counts.clear()
    for seed in range(IN_THE_SUITE[kind]):
        play(kind, seed)
    assert [event for event in SOMETIMES[kind] if not counts[event]] == []


@pytest.mark.parametrize("kind", IN_THE_SUITE)
def test_a_history_depends_on_its_seed_alone(kind):
    first, second, other = (Outcome(kind, seed).world for seed in (3, 3, 4))
    assert (first.steps, first.log) == (second.steps, second.log)
    assert (first.steps, first.log) != (other.steps, other.log)


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_stuck_in_thousands_of_histories():
    kind, first, *last = os.environ.get("TIDEWHEEL_SIMULATION", "job:10000:12000").split(":")
    for seed in range(int(first), int(last[0]) if last else int(first) + 1):
        play(kind, seed)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_it_finds_a_planted_fault(plant, monkeypatch):
    """In histories of the suite, which go well without the fault."""
    plant.put(monkeypatch)
    seeds = (plant.seed, *range(IN_THE_SUITE[plant.kind] // 2))
    assert any(plant.says in str(Outcome(plant.kind, seed).error) for seed in seeds)


def test_a_mixed_range_has_the_proportion_of_the_suite():
    assert Counter(kind_of(seed) for seed in range(40_000, 42_000)) == IN_THE_SUITE


def test_the_page_lists_every_event_and_every_planted_fault():
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    events = {event for events in SOMETIMES.values() for event in events}
    assert [event for event in sorted(events) if f"| {event} |" not in page] == []
    assert [plant.name for plant in PLANTS if plant.text not in page] == []


def test_a_history_that_goes_wrong_is_shrunk_to_few_of_its_faults(monkeypatch):
    next(plant for plant in PLANTS if plant.name == "update_repeated_after_ambiguity").put(monkeypatch)
    whole = next(outcome for outcome in (Outcome("cell", seed) for seed in range(100)) if outcome.error is not None)
    small = shrunk(whole)
    assert small.error is not None
    assert small.world.struck < whole.world.struck / 2
    again = Outcome("cell", whole.seed, small.only)
    assert str(again.error) == str(small.error)
