"""Events that must occur in a run of the suite: a simulation in which they never happen tests less than it seems."""

from __future__ import annotations

from collections import Counter

counts: Counter[str] = Counter()

WORLD = (
    "request lost",
    "request repeated",
    "request took effect after it had failed",
    "change done and answered with an error",
    "listing changed between two pages",
    "process paused",
    "process killed",
    "clock jumped",
    "host cut off",
    "store was full",
)
SOMETIMES = {
    "job": (
        *WORLD,
        "claim over a run that had not ended",
        "collection deleted files",
        "commit adopted a merge",
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
        "standby took the job over",
        "standby warmed its copies",
        "state read while the job runs",
        "table had the rows already",
        "taken over between a commit and its publication",
    ),
    "cell": (
        *WORLD,
        "exchange lost its race",
        "holder found that its lease had lapsed",
        "lease passed on",
        "write of unknown outcome",
    ),
    "fleet": (
        *WORLD,
        "assignment installed by hand",
        "block was stored already",
        "chain of a run removed",
        "events deleted from the inbox",
        "living node evicted",
        "node adopted",
        "node drained",
        "node ended with HeldError",
        "node joined",
        "node left",
        "node revoked",
        "output of a run published after its shards were taken",
        "producer failed",
        "producer repeated events that were stored",
        "publication found to be there already",
        "run that was over closed",
        "shard passed over a run that never adopted it",
        "shard taken from a run with unpublished output",
    ),
}
"""The events of each kind of history."""


def sometimes(event: str, happened: bool = True) -> None:
    """Count an event of the lists above."""
    if happened:
        counts[event] += 1
