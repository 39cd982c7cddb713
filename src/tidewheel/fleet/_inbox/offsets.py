"""The stored position of an inbox: positions by shard, and the identity of the inbox.

An inbox that was deleted and created again has the old URL and another identity; its positions mean other events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidewheel._checkpoint.manifest import Position
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
        return {} if position == "-" else json.loads(position)
    return position if isinstance(position, dict) else {}


def positions_of(position: Position) -> dict[int, int]:
    """Return the positions by shard.

    >>> positions_of({"0": 7, "3": 9, "#id": 81})
    {0: 7, 3: 9}
    """
    return {int(shard): int(number) for shard, number in recorded(position).items() if shard != _IDENTITY}


def identity_of(position: Position) -> int:
    """Return the identity of the inbox of a position; 0 if it is unknown."""
    return int(recorded(position).get(_IDENTITY, 0))


def check_identity(recorded: int, inbox: Inbox) -> None:
    """Refuse another inbox than the one that the job has read."""
    if recorded and inbox.identity and recorded != inbox.identity:
        raise InboxError(
            f"the job has read the inbox with the identity {recorded}, and the one at {inbox.url} has "
            f"{inbox.identity}: it was "
            "removed and made again, or is another one. Give the job the inbox that it read, or begin a job under "
            "another name"
        )
