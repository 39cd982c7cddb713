"""Thousands of histories of a fleet with faults: one owner per shard, no event lost or counted twice, and nobody commits
or publishes for a shard after it was taken away. The simulation also finds planted faults.
"""

from __future__ import annotations

import msgspec
import pytest

from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel.fleet._nodes import handover, sweep

from . import fleet_simulation
from .fleet_simulation import SHARDS, Simulation, Violated


def history(seed: int) -> Simulation:
    simulation = Simulation(seed, nodes=2 + seed % 3, events=6 + seed % 7)
    try:
        world = simulation.run()
    except Violated as violated:
        raise Violated(f"history {seed}: {violated}") from violated
    for shard, sender, number in world.acknowledged:
        assert (sender, number) in world.inbox[shard][: world.counted[shard]], f"history {seed}: an event was lost"
    return simulation


@pytest.mark.parametrize("histories", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_every_event_counts_once_and_every_shard_has_one_owner(histories):
    """A failure names its seed, which gives the same history again."""
    moved = repeated = removed = reclaimed = 0
    for seed in range(histories):
        world = history(seed).world
        removed += len(world.removed)
        reclaimed += world.reclaimed
        moved += sum(max(ledger.terms.get(shard, 0) for ledger in world.ledgers.values()) for shard in range(SHARDS))
        repeated += sum(len(log) - len(set(log)) for log in world.inbox.values())
    assert moved > 5 * histories, "the histories are too quiet to prove anything"
    assert repeated > histories, "no event was sent twice"
    assert removed > histories, "few runs were removed"
    assert reclaimed > histories // 100, "hardly any shard was taken again from who had given it to a run that is gone"


def found_within(seeds: int) -> str:
    for seed in range(seeds):
        try:
            history(seed)
        except (Violated, handover.HandoverRefused) as violated:
            return str(violated)
    return ""


@pytest.mark.parametrize(
    "break_a_rule",
    [
        pytest.param(
            lambda m: m.setattr(handover, "pass_over", lambda ledger, pending, to: handover._next(ledger)),
            id="a dead taker is waited for",
        ),
        pytest.param(
            lambda m: m.setattr(
                handover,
                "revoke",
                lambda ledger, shards, to, real=handover.revoke: msgspec.structs.replace(
                    real(ledger, shards, to), held=ledger.held
                ),
            ),
            id="the holder keeps what is taken",
        ),
        pytest.param(
            lambda m: m.setattr(
                handover,
                "next_step",
                lambda me, wanted, ledgers, published, gone, real=handover.next_step: real(
                    me, wanted, ledgers, dict.fromkeys(ledgers, 10**9), gone
                ),
            ),
            id="an adopter does not publish first",
        ),
        pytest.param(
            lambda m: m.setattr(
                fleet_simulation,
                "state_of",
                lambda head, ledger, token, sources, real=fleet_simulation.state_of: real(
                    head, msgspec.structs.replace(ledger, revoked={}), token, sources
                ),
            ),
            id="what was taken is forgotten before it is adopted",
        ),
        pytest.param(
            lambda m: m.setattr(
                fleet_simulation,
                "ledger_of",
                lambda state, real=fleet_simulation.ledger_of: real(state.replace(source_offsets={})),
            ),
            id="an adopter begins where the holder began",
        ),
        pytest.param(
            lambda m: m.setattr(sweep, "is_settled", lambda ledger, known: ledger.run != ORIGIN and not ledger.held),
            id="a run is removed before all that was taken from it is adopted",
        ),
        pytest.param(
            lambda m: m.setattr(fleet_simulation, "known_gone", lambda before, named: frozenset()),
            id="a taker that is gone is waited for",
        ),
    ],
)
def test_a_broken_rule_is_found(monkeypatch, break_a_rule):
    break_a_rule(monkeypatch)
    assert found_within(300)
