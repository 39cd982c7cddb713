"""Events that a job cannot read, in an inbox of their own. Each is stored once, however often it is read."""

from __future__ import annotations

import msgspec

from tidewheel._connectors.inbox import open_inbox
from tidewheel._connectors.inbox.base import Block, Stored
from tidewheel._connectors.inbox.events import Events, encode_events
from tidewheel._connectors.inbox.payloads import BadPayload
from tidewheel._core.urls import Url

PRODUCER = "dead-letters"
_PER_BLOCK = 1 << 13
"""More than the events of a block: an event's number follows from its block's position and its place there."""


def store(url: str | Url, n_shards: int, stored: Stored, events: Events, bad: list[BadPayload]) -> None:
    """Append bad events of a block, unless they are stored already."""
    shard = stored.block.shard
    with open_inbox(url, n_shards) as letters:
        known = letters.marks(PRODUCER).get(shard, 0)
        numbers = [stored.position * _PER_BLOCK + each.place + 1 for each in bad]
        new = [(number, each) for number, each in zip(numbers, bad, strict=True) if number > known]
        if not new:
            return
        keys = [events.keys[each.place] for _, each in new]
        payloads = [_letter(stored, events, each) for _, each in new]
        data = encode_events(keys, payloads, [number for number, _ in new])
        # One session for all: who stores the same ones at the same time is no other program.
        letters.append(PRODUCER, PRODUCER, [Block(shard, new[0][0], len(new), data, new[-1][0])])


def _letter(stored: Stored, events: Events, bad: BadPayload) -> bytes:
    return msgspec.json.encode(
        {
            "payload": events.payloads[bad.place].decode(errors="replace"),
            "error": bad.error,
            "shard": stored.block.shard,
            "position": stored.position,
            "producer": stored.producer,
            "number": events.numbers[bad.place],
        }
    )
