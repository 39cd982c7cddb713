"""What every inbox promises: for each shard a durable, ordered log of events, stamped by their producers.

Events travel in blocks: a run of events of one producer for one shard. A block's stamp is its producer and the numbers of
its first and its last event. A producer counts its events per shard, from 1, or gives them ascending numbers of its own,
such as the offsets of a Kafka partition. Appending the same stamps again stores nothing, so a producer that got no answer
sends again.

An inbox tells a repeat by the producer's *marks*: the number of its last stored event in each shard. Marks outlive the
events. They go when the producer has been silent for `marks_s`, or when it says that it sends nothing more.
"""

from __future__ import annotations

import itertools
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Self

import msgspec

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
    """The number of the last event, if the producer's numbers have gaps; 0: they have none."""

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.through or self.first + self.count - 1


class Stored(msgspec.Struct, frozen=True):
    """A block in the log. The next one of the shard stands at `position + 1` or after."""

    position: int
    producer: str
    block: Block


class Inbox(ABC):
    """The logs of all shards of a job. Safe to use from several threads.

    Positions are numbers that grow along a shard's log, not always by one. Positions of two shards need not compare.
    """

    url: str
    n_shards: int
    identity: int = 0
    """A number that no other inbox has, also none that is made later under the same URL; 0: an older version made it."""
    max_block_bytes: int
    """The most bytes that one block may have."""
    compresses: bool = False
    """Whether blocks are to be compressed: where storing a byte takes longer than that, and all readers know of it."""
    batch_events: int = 50_000
    """How many events a router sends at once by itself: more where each block is made durable by itself."""

    @abstractmethod
    def append(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        """Store blocks, at most one per shard; all are durable when this returns.

        A block that this producer's session stored before is passed over. `InboxError`: another session uses the
        producer's name, or numbers were left out. `InboxUnavailable`: some may be stored and some not; append all of
        them again.
        """

    @abstractmethod
    def marks(self, producer: str) -> dict[int, int]:
        """Return the number of the last stored event of a producer, by shard."""

    @abstractmethod
    def forget(self, producer: str) -> None:
        """Let go of the marks of a producer that sends nothing more."""

    @abstractmethod
    def start(self) -> dict[int, int]:
        """Return, for every shard, a position at or before its oldest block."""

    @abstractmethod
    def end(self, shards: Sequence[int]) -> dict[int, int]:
        """Return, for each shard, a position behind its newest block: what stands before it never changes."""

    @abstractmethod
    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Stored]:
        """Give the blocks of each shard from its start (included) to its end (not included), by position.

        The same range gives the same blocks. `InboxError` if a part of it was trimmed.
        """

    def sizes(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
        """Give position, shard and number of events of each block of a range, by position."""
        for stored in self.read(start, end):
            yield stored.position, stored.block.shard, stored.block.count

    @abstractmethod
    def trim(self, below: Mapping[int, int], older_than: Duration = "0 s") -> None:
        """Let go of blocks below these positions, one for every shard, that are at least `older_than` old; some may stay."""

    @abstractmethod
    def skip(self, shard: int, position: int, number: int) -> None:
        """Have readers leave out one event, if it cannot be read; durable when this returns."""

    @abstractmethod
    def skipped(self) -> set[tuple[int, int, int]]:
        """Return shard, position and number of the events that are to be left out."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files, sockets and threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def limited(inbox: Inbox, start: Mapping[int, int], end: Mapping[int, int], max_events: int) -> dict[int, int]:
    """Return an end that comes earlier, so that the range has no more than about `max_events`; one block at least.

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
    """Return how many events of each shard stand at or behind these positions, and whether that is all of them.

    No more than `max_blocks` are looked at, those with the lowest positions first.
    """
    behind = dict.fromkeys(positions, 0)
    for number, (_, shard, count) in enumerate(inbox.sizes(positions, inbox.end(list(positions)))):
        if number == max_blocks:
            return behind, False
        behind[shard] += count
    return behind, True


def check_producer(producer: str) -> str:
    """Return a producer's name, or refuse it."""
    if not is_producer(producer):
        raise ConfigError(
            f"{producer!r} cannot name a producer: use 1 to 100 letters, digits, - and _ and begin with a letter or "
            "digit"
        )
    return producer


def is_producer(producer: str) -> bool:
    """Tell whether a text can name a producer."""
    return _PRODUCER.fullmatch(producer) is not None or is_anonymous(producer)


def anonymous_producer() -> str:
    """Return a producer's name that nobody else has, for a producer that never comes back under it."""
    return f"_{secrets.token_hex(8)}"


def new_identity() -> int:
    """Return a number that no inbox has yet, and that every reader of JSON takes."""
    return secrets.randbits(52) + 1


def is_anonymous(producer: str) -> bool:
    """Tell whether a producer's name was made by `anonymous_producer`."""
    return _ANONYMOUS.fullmatch(producer) is not None


def marks_s(producer: str) -> float:
    """Return for how many seconds after its last event an inbox remembers what a producer has sent."""
    return ANONYMOUS_MARKS_S if is_anonymous(producer) else NAMED_MARKS_S


def is_duplicate(block: Block, session: str, mark: tuple[str, int], producer: str, where: str) -> bool:
    """Tell whether a block is stored already, given the session and number of the producer's last stored event.

    Two sessions of one producer must not be taken for one another: the second's new events would be lost as duplicates
    of the first's.
    """
    known_session, known = mark
    if block.first == known + 1 or (block.through and block.first > known):
        return False
    if block.last <= known and session == known_session:
        return True
    raise InboxError(
        f"producer {producer!r} sent the events {block.first} to {block.last} for shard {block.shard} of {where}, "
        "where its last "
        f"stored one is {known}: another program uses the same producer name; give each its own, or stop the other one"
    )


def decode_skipped(data: bytes, where: str) -> set[tuple[int, int, int]]:
    """Return the events that are to be left out, as an inbox has stored them."""
    try:
        return set(msgspec.json.decode(data, type=list[tuple[int, int, int]]))
    except UNDECODABLE as error:
        raise CorruptError(f"the list of skipped events of {where} does not decode ({error})") from None
