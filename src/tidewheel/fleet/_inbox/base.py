"""The interface of inboxes: for each shard a durable, ordered log of events, stamped by their producers.

Events are stored in blocks: consecutive events of one producer for one shard. The stamp of a block is its producer and
the numbers of its first and last event. A producer counts its events per shard from 1, or uses other ascending numbers,
such as the offsets of a Kafka partition. Appending a stored stamp again has no effect, so a producer that got no answer
can send again.

An inbox detects repeated events by the producer's *marks*: the number of its last stored event in each shard. Marks
remain after the events are deleted. They expire when the producer has sent nothing for `marks_s`, or when the producer
ends.
"""

from __future__ import annotations

import itertools
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from tidewheel._core.closing import Closing
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError, CorruptError
from tidewheel.fleet._inbox.errors import InboxError

_PRODUCER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_ANONYMOUS = re.compile(r"_[0-9a-f]{16}")

Bytes = bytes | memoryview

NAMED_MARKS_S = 30 * 86400.0
ANONYMOUS_MARKS_S = 86400.0


class Block(msgspec.Struct, frozen=True):
    """Events of one producer for one shard, in order: those with the numbers `first` to `last`."""

    shard: int
    first: int
    count: int
    data: Bytes
    through: int = 0
    """The number of the last event if the producer's numbers have gaps; otherwise 0."""

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.through or self.first + self.count - 1


class Stored(msgspec.Struct, frozen=True):
    """A block in the log. The next block of the shard is at `position + 1` or later."""

    position: int
    producer: str
    block: Block


class Inbox(Closing, ABC):
    """The logs of all shards of a job. Safe to use from several threads.

    Positions are numbers that increase along the log of a shard, not always by one. Positions of two shards are not
    comparable.
    """

    url: str
    n_shards: int
    identity: int = 0
    """A number that identifies the inbox, also among later ones at the same URL; 0 if an older version created it."""
    max_block_bytes: int
    """The maximum size of a block in bytes."""
    compresses: bool = False
    """Whether to compress blocks: if storing takes longer than compressing, and all readers support it."""
    batch_events: int = 50_000
    """How many events a router collects before it sends; more if each block is made durable separately."""

    @abstractmethod
    def append(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        """Store blocks, at most one per shard; all are durable when this returns.

        Skip blocks that this session of the producer has stored before. Raise an `InboxError` if another session uses
        the producer's name, or if numbers are missing. After an `InboxUnavailable`, some blocks may be stored; append
        all of them again.
        """

    @abstractmethod
    def marks(self, producer: str) -> dict[int, int]:
        """Return the number of the last stored event of a producer, by shard."""

    @abstractmethod
    def forget(self, producer: str) -> None:
        """Delete the marks of a producer that has ended."""

    @abstractmethod
    def start(self) -> dict[int, int]:
        """Return, for every shard, a position at or before its oldest block."""

    @abstractmethod
    def end(self, shards: Sequence[int]) -> dict[int, int]:
        """Return, for each shard, a position after its newest block; blocks before it never change."""

    @abstractmethod
    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Stored]:
        """Yield the blocks of each shard from its start (included) to its end (excluded), by position.

        The same range gives the same blocks. Raise an `InboxError` if a part of it was deleted.
        """

    def sizes(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
        """Yield position, shard and number of events of each block in a range, by position."""
        for stored in self.read(start, end):
            yield stored.position, stored.block.shard, stored.block.count

    @abstractmethod
    def trim(self, below: Mapping[int, int], older_than: Duration = "0 s") -> None:
        """Delete blocks before these positions, one per shard, that are at least `older_than` old; some may remain."""

    @abstractmethod
    def skip(self, shard: int, position: int, number: int) -> None:
        """Make readers skip one event if it cannot be read; durable when this returns."""

    @abstractmethod
    def skipped(self) -> set[tuple[int, int, int]]:
        """Return shard, position and number of the events to skip."""

    @abstractmethod
    def close(self) -> None:
        """Close files, sockets and threads."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def limited(inbox: Inbox, start: Mapping[int, int], end: Mapping[int, int], max_events: int) -> dict[int, int]:
    """Return an earlier end, so that the range has at most about `max_events`, but at least one block.

    Blocks are taken in the order of their positions over all shards, so no shard is left behind.
    """
    taken, cut = 0, None
    for position, blocks in itertools.groupby(inbox.sizes(start, end), key=itemgetter(0)):
        count = sum(size for _, _, size in blocks)
        if taken and taken + count > max_events:
            cut = position
            break
        taken += count
    if cut is None:
        return dict(end)
    return {shard: max(start[shard], min(last, cut)) for shard, last in end.items()}


def lag(inbox: Inbox, positions: Mapping[int, int], max_blocks: int = 20_000) -> tuple[dict[int, int], bool]:
    """Return how many events each shard has from these positions on, and whether the count is complete.

    At most `max_blocks` blocks are counted, those with the lowest positions first.
    """
    behind = dict.fromkeys(positions, 0)
    for number, (_, shard, count) in enumerate(inbox.sizes(positions, inbox.end(list(positions)))):
        if number == max_blocks:
            return behind, False
        behind[shard] += count
    return behind, True


def check_producer(producer: str) -> str:
    """Return the name of a producer; raise if it is invalid."""
    if not is_producer(producer):
        raise ConfigError(
            f"{producer!r} cannot name a producer: use 1 to 100 letters, digits, - and _ and begin with a letter or "
            "digit"
        )
    return producer


def is_producer(producer: str) -> bool:
    """Return whether a text is a valid name of a producer."""
    return _PRODUCER.fullmatch(producer) is not None or is_anonymous(producer)


def anonymous_producer() -> str:
    """Return a unique name for a producer that never reuses it."""
    return f"_{secrets.token_hex(8)}"


def new_identity() -> int:
    """Return a random identity for an inbox, small enough for every JSON parser."""
    return secrets.randbits(52) + 1


def is_anonymous(producer: str) -> bool:
    """Return whether `anonymous_producer` created a name."""
    return _ANONYMOUS.fullmatch(producer) is not None


def marks_s(producer: str) -> float:
    """Return for how many seconds after its last event an inbox keeps the marks of a producer."""
    return ANONYMOUS_MARKS_S if is_anonymous(producer) else NAMED_MARKS_S


def is_duplicate(block: Block, session: str, mark: tuple[str, int], producer: str, where: str) -> bool:
    """Return whether a block is already stored, given the session and number of the producer's last event in the shard.

    Sessions of one producer must be kept apart: otherwise new events of the second would be dropped as duplicates of
    the first.
    """
    known_session, known = mark
    if block.first == known + 1 or (block.through and block.first > known):
        return False
    if block.last <= known and session == known_session:
        return True
    raise InboxError(
        f"producer {producer!r} sent the events {block.first} to {block.last} for shard {block.shard} of {where}, "
        f"where its last stored one is {known}: another program uses the same producer name, or an earlier run of this one "
        "stored events late; give each program its own name, or start this one again"
    )


def decode_skipped(data: bytes, where: str) -> set[tuple[int, int, int]]:
    """Decode the stored list of events to skip."""
    try:
        return set(msgspec.json.decode(data, type=list[tuple[int, int, int]]))
    except UNDECODABLE as error:
        raise CorruptError(f"the list of skipped events of {where} does not decode ({error})") from None
