"""Auxiliary tables of a step: timers and segments. Their entries have their own keys and belong to message keys."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._core.keys import from_stored
from tidewheel._state.segments import is_segments, moved_segment, owner_of_segment
from tidewheel._state.timers import decode, encode, is_timers, stored_key


def is_auxiliary(table: str) -> bool:
    """Return whether a table's keys are not message keys."""
    return is_timers(table) or is_segments(table)


def owner(table: str, entry: bytes) -> bytes:
    """Return the stored message key that an entry of a table belongs to."""
    if is_timers(table):
        return stored_key(entry)
    return owner_of_segment(entry) if is_segments(table) else entry


def readable_key(table: str, entry: bytes) -> Any:
    """Return the key of an entry for display: for a timer or a segment, the message key and its other parts.

    >>> from tidewheel._state.timers import Timer
    >>> readable_key("sum/timers", encode(Timer("ada", 3, "end")))
    {'key': 'ada', 'time': 3, 'name': 'end', 'clock': 'event'}
    """
    if is_timers(table):
        return msgspec.structs.asdict(decode(entry))
    if is_segments(table):
        return {"key": from_stored(owner_of_segment(entry)), "segment": from_stored(entry)[1]}
    return from_stored(entry)


def reassigned(table: str, entry: bytes, stored: bytes) -> bytes:
    """Return the key of an entry after it is assigned to another stored key."""
    if is_timers(table):
        return encode(msgspec.structs.replace(decode(entry), key=from_stored(stored)))
    return moved_segment(entry, stored) if is_segments(table) else stored
