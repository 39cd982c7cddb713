"""The hand-over ledger of a node's run, in the manifests of its chain. Pure.

A run's manifests are those of any job. What the hand-over adds, terms and revoked shards, is one entry of their opaque
states, which batches carry on untouched; which state a shard has and how far its inbox is counted, a batch says anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec

from tidewheel._checkpoint.manifest import FLEET_ENTRY, CheckpointId, Manifest
from tidewheel._checkpoint.tools.fork import shared_parts
from tidewheel._checkpoint.unpublished import carrying, outputs_of
from tidewheel._fleet.handover import ORIGIN, Holding, Ledger, Revoked, origin
from tidewheel._state.references import ShardParts
from tidewheel._time.frontier import Frontier
from tidewheel.errors import CorruptError, StateError

SEQUENCES = 1 << 32
"""How many sequences a run has: those of run 7 begin at seven times as many, so labels ascend from run to run."""

_CLOSED = "closed"


class _Held(msgspec.Struct, frozen=True, array_like=True):
    term: int
    position: int
    """As it was adopted; the offsets of the run's batches tell more."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    held: dict[int, _Held]
    revoked: dict[int, Revoked]
    terms: dict[int, int]


_decoder = msgspec.msgpack.Decoder(_Entry)


def stream_of(job: str, run: str) -> str:
    """Return the stream of a run's chain. No job is called so: job names have no slash.

    >>> stream_of("orders", "7"), stream_of("orders", ORIGIN)
    ('orders/7', 'orders')
    """
    return job if run == ORIGIN else f"{job}/{run}"


def run_of(stream: str) -> str:
    """Return the run whose chain a stream is."""
    return stream.partition("/")[2] or ORIGIN


def check_fleet(state: Manifest, n_shards: int) -> None:
    """Refuse a job that was run by itself, or that has another number of shards."""
    job = state.id.stream_id
    if not state.of_fleet:
        raise StateError(
            f"job {job!r} has the state of a run of its own, up to sequence {state.sequence}; a fleet begins with none: give the "
            "job another name or state URL"
        )
    if state.n_shards != n_shards:
        raise StateError(
            f"the fleet of {job!r} has {state.n_shards} shards, this node's program has n_shards={n_shards}: the number is fixed "
            f"for the life of a job's state; set n_shards={state.n_shards}"
        )


def first_state(job: str, n_shards: int, lineage: str, token: str) -> Manifest:
    """Return the first manifest of the origin: it holds every shard, empty."""
    return Manifest(
        CheckpointId(job, 1),
        kind="handover",
        run=token,
        n_shards=n_shards,
        lineage=lineage,
        operator_states={FLEET_ENTRY: _encoded(origin(n_shards))},
    )


def begun_state(job: str, number: int, token: str, first: Manifest) -> Manifest:
    """Return the first manifest of a run, which holds nothing yet; `first` is any of the origin's."""
    run = str(number)
    return Manifest(
        CheckpointId(stream_of(job, run), number * SEQUENCES),
        kind="handover",
        run=token,
        n_shards=first.n_shards,
        lineage=first.lineage,
        operator_states={FLEET_ENTRY: _encoded(Ledger(run))},
    )


def ledger_of(state: Manifest) -> Ledger:
    """Return what a manifest says about shards; its references are by the names that all runs know."""
    stream = state.id.stream_id
    try:
        entry = _decoder.decode(state.operator_states[FLEET_ENTRY])
    except (KeyError, msgspec.DecodeError) as error:
        raise CorruptError(f"checkpoint {state.sequence} of {stream!r} has no ledger of a fleet ({error})") from None
    counted = _positions(state.source_offsets)
    held = {
        shard: Holding(
            known.term,
            max(known.position, counted.get(shard, 0)),
            shared_parts(stream, state.shards.get(shard, ShardParts())),
        )
        for shard, known in entry.held.items()
    }
    staged = outputs_of(state) if state.outputs else 0
    return Ledger(run_of(stream), state.sequence, held, entry.revoked, entry.terms, staged)


def state_of(head: Manifest, ledger: Ledger, token: str, sources: Iterable[Manifest] = ()) -> Manifest:
    """Return the manifest that makes a ledger the next of its chain, on behalf of the run with that token.

    It carries on the output that may not be published. `sources` are the manifests that shards are adopted from:
    neither time nor what is known of the operators goes back.
    """
    known = (head, *sources)
    shards = {
        shard: head.shards.get(shard, holding.parts)
        for shard, holding in ledger.held.items()
        if holding.parts != ShardParts()
    }
    return head.replace(
        id=CheckpointId(head.id.stream_id, ledger.number),
        kind="handover",
        run=token,
        shards=shards,
        metadata=carrying(head.metadata, head),
        operator_states={**head.operator_states, FLEET_ENTRY: _encoded(ledger)},
        operators={name: info for state in known for name, info in state.operators.items()},
        frontiers=_latest(state.frontiers for state in known),
        watermark_ns=max((state.watermark_ns for state in known if state.watermark_ns is not None), default=None),
        now=max(state.now for state in known),
        parent=head.sequence,
    )


def closed(head: Manifest, token: str) -> Manifest:
    """Return the manifest that closes a chain: its run adopts nothing any more."""
    ledger = ledger_of(head)
    state = state_of(head, msgspec.structs.replace(ledger, number=ledger.number + 1), token)
    return state.replace(metadata={**state.metadata, _CLOSED: token})


def is_closed(head: Manifest) -> bool:
    """Tell whether a chain is closed."""
    return _CLOSED in head.metadata


def _encoded(ledger: Ledger) -> bytes:
    held = {shard: _Held(holding.term, holding.position) for shard, holding in sorted(ledger.held.items())}
    entry = _Entry(held, dict(sorted(ledger.revoked.items())), dict(sorted(ledger.terms.items())))
    return msgspec.msgpack.encode(entry)


def _positions(offsets: Mapping[str, int | str]) -> dict[int, int]:
    """Return the positions by shard in the offsets of the one source that a job in a fleet has."""
    found: dict[int, int] = {}
    for text in offsets.values():
        if isinstance(text, str) and text != "-":
            found.update({int(shard): int(position) for shard, position in json.loads(text).items()})
    return found


def _latest(many: Iterable[Mapping[str, Frontier]]) -> dict[str, Frontier]:
    merged: dict[str, Frontier] = {}
    for frontiers in many:
        for name, found in frontiers.items():
            known = merged.get(name, Frontier(None, 0))
            times = [time for time in (known.time, found.time) if time is not None]
            merged[name] = Frontier(max(times, default=None), max(known.active_at, found.active_at))
    return merged
