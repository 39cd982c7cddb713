"""The position of a streaming DataFrame: the data that its streaming query needs to continue."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import Position
from tidewheel._checkpoint.spark_log import NO_OFFSET, OldPosition


class FramePosition(msgspec.Struct, frozen=True):
    """The position of Spark in a streaming DataFrame."""

    query: str
    batch: int
    kinds: list[str]
    """The kind of each stream."""
    before: str
    """The text of Spark's offsets of the batch before."""
    offsets: str
    """The text of Spark's offsets of this batch."""
    files: dict[str, str]
    """Small files of the streams, by folder and name."""

    @classmethod
    def of(cls, position: Position) -> FramePosition:
        """Decode a recorded position."""
        return msgspec.convert(position, cls)

    def recorded(self) -> Position:
        """Return the form in which commits record it."""
        recorded: dict[str, Any] = msgspec.to_builtins(self)
        return recorded


def frame_position(old: OldPosition) -> Position | None:
    """Return the position of a DataFrame from Spark's log; None if it has read nothing."""
    if all(offset == NO_OFFSET for offset in old.offsets[1]):
        return None
    folders = {log: number for number, log in enumerate(dict.fromkeys(old.logs))}
    texts = ["\n".join([header, *lines]) for header, lines in zip(old.headers, old.offsets, strict=True)]
    files = {}
    for place, text in old.files.items():
        log, _, name = place.partition("/")
        files[f"{folders[int(log)]}/{name}"] = text
    # Spark stops a query when another one with the same id starts, and each source has a query of its own now.
    query = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{old.query} {old.logs}"))
    return FramePosition(query, old.batch, list(old.kinds), texts[0], texts[1], files).recorded()
