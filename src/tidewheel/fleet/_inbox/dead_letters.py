"""Events that a job cannot read, in a separate inbox. Each is stored once, however often it is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tidewheel._core.keys import to_stored
from tidewheel._core.urls import Url
from tidewheel.fleet._inbox import open_inbox
from tidewheel.fleet._inbox.base import Block, Inbox, Stored
from tidewheel.fleet._inbox.events import encode_events

PRODUCER = "dead-letters"
_PER_BLOCK = 1 << 13
"""More than a block can have: the number of an event is computed from its block's position and its index."""
_ERROR_CHARACTERS = 2_000
_NO_KEY = to_stored("")


class DeadEvent(msgspec.Struct, frozen=True):
    """An event that cannot be read: its index in its block, its number, key and payload, and the reason."""

    place: int
    number: int
    key: bytes
    payload: bytes
    error: str


def store(url: str | Url, n_shards: int, stored: Stored, events: Iterable[DeadEvent]) -> None:
    """Append events of one block, unless they are already stored."""
    shard = stored.block.shard
    with open_inbox(url, n_shards) as letters:
        known = letters.marks(PRODUCER).get(shard, 0)
        limit = letter_limit(letters)
        # One at a time: bad events are few, and each can be as large as a block.
        for event in events:
            number = stored.position * _PER_BLOCK + event.place + 1
            if number > known:
                where = {
                    "shard": shard,
                    "position": stored.position,
                    "producer": stored.producer,
                    "number": event.number,
                }
                key = event.key if len(event.key) <= limit else _NO_KEY
                data = encode_events([key], [letter(event.payload, event.error, where, limit)], [number])
                # One session for all: another process that stores the same events is not another program.
                letters.append(PRODUCER, PRODUCER, [Block(shard, number, 1, data, number)])


def letter_limit(letters: Inbox) -> int:
    """Return the maximum size of a dead letter: that of an event in a router, with room for its key."""
    return letters.max_block_bytes // 8


def letter(payload: bytes, error: str, where: dict[str, Any], limit: int) -> bytes:
    """Return a dead letter as JSON of at most `limit` bytes: the payload as text, truncated if necessary.

    A truncated letter has the field `payload_bytes`, the size of the whole payload. `where` says where the payload is.
    """
    fields: dict[str, Any] = {"payload": payload.decode(errors="replace"), "error": error[:_ERROR_CHARACTERS], **where}
    encoded = msgspec.json.encode(fields)
    while len(encoded) > limit and fields["payload"]:
        fields["payload_bytes"] = len(payload)
        # A character takes up to six bytes in JSON, so up to half of what would fit may be removed.
        fields["payload"] = fields["payload"][: min(limit, len(fields["payload"]) // 2)]
        encoded = msgspec.json.encode(fields)
    return encoded
