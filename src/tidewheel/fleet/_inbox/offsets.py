"""The stored position of an inbox: positions by shard, and the identity of the inbox.

An inbox that was deleted and created again has the old URL and another identity; its positions mean other events.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidewheel._checkpoint.manifest import Position
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import StateError
from tidewheel.fleet._inbox.base import Inbox
from tidewheel.fleet._inbox.errors import InboxError

Offsets = dict[str, int]
_IDENTITY = "#id"


def offsets_of(inbox: Inbox, positions: Mapping[int, int]) -> Offsets:
    """Return the stored form of positions in an inbox."""
    known = {_IDENTITY: inbox.identity} if inbox.identity else {}
    return {**{str(shard): position for shard, position in positions.items()}, **known}


def recorded(position: Position) -> Mapping[str, int]:
    """Return a stored position; versions that kept Spark's log stored it as text."""
    if isinstance(position, str):
        position = {} if position == "-" else _loaded(position)
    return position if isinstance(position, dict) else {}


def _loaded(text: str) -> Position:
    try:
        position: Position = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise StateError(f"the position {text!r} of an inbox does not decode ({error})") from None
    return position


def positions_of(position: Position) -> dict[int, int]:
    """Return the positions by shard.

    >>> positions_of({"0": 7, "3": 9, "#id": 81})
    {0: 7, 3: 9}
    """
    try:
        return {int(shard): int(number) for shard, number in recorded(position).items() if shard != _IDENTITY}
    except (TypeError, ValueError, OverflowError) as error:
        raise StateError(f"the position of an inbox has a number for each shard, not {position!r} ({error})") from None


def identity_of(position: Position) -> int:
    """Return the identity of the inbox of a position; 0 if it is unknown."""
    identity = recorded(position).get(_IDENTITY, 0)
    try:
        return int(identity)
    except (TypeError, ValueError, OverflowError):
        raise StateError(f"the identity of an inbox is a number, not {identity!r}") from None


def check_identity(recorded: int, inbox: Inbox) -> None:
    """Refuse another inbox than the one that the job has read."""
    if recorded and inbox.identity and recorded != inbox.identity:
        raise InboxError(
            f"the job has read the inbox with the identity {recorded}, and the one at {inbox.url} has "
            f"{inbox.identity}: it was "
            "removed and made again, or is another one. Give the job the inbox that it read, or begin a job under "
            "another name"
        )
