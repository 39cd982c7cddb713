"""Find the events of a fleet's inbox that are still needed, and delete the others."""

from __future__ import annotations

from datetime import timedelta

from tidewheel._checkpoint.fleet_ledger import ORIGIN
from tidewheel.fleet._inbox import Inbox
from tidewheel.fleet._nodes import handover
from tidewheel.fleet._nodes.chains import Chains
from tidewheel.fleet._nodes.ledger import ledger_of


def needed_from(chains: Chains) -> dict[int, int]:
    """Return for every shard the position from which its events are needed; 0 if nothing was read yet.

    Needed are events that the holder has not processed, and those processed after a checkpoint that the holder keeps.
    """
    custody = handover.custody(chains.ledgers())
    lowest = {shard: whose.holding.position for shard, whose in custody.items()}
    for run in sorted({whose.run for whose in custody.values()} - {ORIGIN}):
        for state in chains.of(run).list():
            for shard, holding in ledger_of(state).held.items():
                lowest[shard] = min(lowest[shard], holding.position)
    return lowest


def trim(chains: Chains, inbox: Inbox, older_than: float = 0.0) -> bool:
    """Delete events that are not needed and older than this many seconds; return False if all are needed."""
    needed = needed_from(chains)
    if not all(needed.values()):
        return False
    inbox.trim(needed, timedelta(seconds=older_than))
    return True
