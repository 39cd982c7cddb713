"""Tables beside an operator's own: timers and segments. Their entries have keys of their own, and belong to keys of messages."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._core.keys import from_stored
from tidewheel._state.segments import is_segments, moved_segment, owner_of_segment
from tidewheel._state.timers import decode, encode, is_timers, stored_key


def is_beside(table: str) -> bool:
    """Tell whether a table's keys are not the keys of messages."""
    return is_timers(table) or is_segments(table)


def owner(table: str, entry: bytes) -> bytes:
    """Return the stored key of the message key that an entry of a table belongs to."""
    if is_timers(table):
        return stored_key(entry)
    return owner_of_segment(entry) if is_segments(table) else entry


def readable_key(table: str, entry: bytes) -> Any:
    """Return the key of an entry of a table for people: for a timer or a segment, the message key and what else it says.

    >>> from tidewheel._state.timers import Timer
    >>> readable_key("sum/timers", encode(Timer("ada", 3, "end")))
    {'key': 'ada', 'time': 3, 'name': 'end', 'clock': 'event'}
    """
    if is_timers(table):
        return msgspec.structs.asdict(decode(entry))
    if is_segments(table):
        return {"key": from_stored(owner_of_segment(entry)), "segment": from_stored(entry)[1]}
    return from_stored(entry)


def given_to(table: str, entry: bytes, stored: bytes) -> bytes:
    """Return the key that an entry of a table has when it belongs to another stored key."""
    if is_timers(table):
        return encode(msgspec.structs.replace(decode(entry), key=from_stored(stored)))
    return moved_segment(entry, stored) if is_segments(table) else stored
