"""What a job records of an inbox: positions by shard, and which inbox they are of.

An inbox that was removed and made again has the old URL, and another identity. However long it is by then, its positions
are others.
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
    """Return what is recorded of positions in an inbox."""
    known = {_IDENTITY: inbox.identity} if inbox.identity else {}
    return {**{str(shard): position for shard, position in positions.items()}, **known}


def recorded(position: Position) -> Mapping[str, int]:
    """Return a position as it was recorded; versions that kept Spark's log had it as text."""
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
    """Return the identity of the inbox that a position is of; 0 if it is not known."""
    return int(recorded(position).get(_IDENTITY, 0))


def check_identity(recorded: int, inbox: Inbox) -> None:
    """Refuse an inbox that is not the one that a job has read."""
    if recorded and inbox.identity and recorded != inbox.identity:
        raise InboxError(
            f"the job has read the inbox with the identity {recorded}, and the one at {inbox.url} has "
            f"{inbox.identity}: it was "
            "removed and made again, or is another one. Give the job the inbox that it read, or begin a job under "
            "another name"
        )
