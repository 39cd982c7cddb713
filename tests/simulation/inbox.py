"""An inbox on a simulated server: each append is a request for each block, and each block is stored at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulation.primitives import scheduler
from simulation.scheduler import SECOND
from simulation.sometimes import sometimes
from tidewheel._time.duration import Duration, seconds
from tidewheel.fleet._inbox.base import Block, Inbox, Stored, is_duplicate
from tidewheel.fleet._inbox.errors import InboxError, InboxUnavailable

if TYPE_CHECKING:
    from simulation.scheduler import Scheduler

URL = "nats://simulated/inbox"


class InboxServer:
    """The stored blocks and the marks of their producers."""

    def __init__(self, world: Scheduler, n_shards: int) -> None:
        self.world, self.n_shards, self.identity = world, n_shards, 7
        self.blocks: list[tuple[int, Stored]] = []
        """Blocks and when they were stored."""
        self.next = 1
        self.begins = dict.fromkeys(range(n_shards), 1)
        """The position before which the blocks of each shard are deleted."""
        self.marks: dict[str, dict[int, tuple[str, int]]] = {}
        """By producer and shard, the session and number of the last event."""

    def append(self, producer: str, session: str, block: Block) -> None:
        """Store a block, unless it is stored."""
        known = self.marks.get(producer)
        mark = (session, block.first - 1) if known is None else known.get(block.shard, ("", 0))
        if is_duplicate(block, session, mark, producer, URL):
            sometimes("block was stored already")
            return
        data = Block(block.shard, block.first, block.count, bytes(block.data), block.through)
        self.blocks.append((self.world.now, Stored(self.next, producer, data)))
        self.next += 1
        self.marks.setdefault(producer, {})[block.shard] = session, block.last

    def last(self, producer: str) -> dict[int, int]:
        """Return the number of the last event of a producer, by shard."""
        return {shard: number for shard, (_, number) in self.marks.get(producer, {}).items()}

    def trim(self, below: Mapping[int, int], age: float) -> None:
        """Delete blocks before these positions that are old enough."""
        until, kept = self.world.now - int(age * SECOND), []
        for at, stored in self.blocks:
            shard = stored.block.shard
            if stored.position < below.get(shard, 0) and at <= until:
                self.begins[shard] = max(self.begins[shard], stored.position + 1)
                sometimes("events deleted from the inbox")
            else:
                kept.append((at, stored))
        self.blocks = kept


class SimulatedInbox(Inbox):
    """A client of the server."""

    max_block_bytes = 2**20

    def __init__(self) -> None:
        self.url, self.n_shards = URL, self._server().n_shards
        self.identity = self._call("open", lambda: self._server().identity)

    def append(self, producer: str, session: str, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._call("append", lambda block=block: self._server().append(producer, session, block), True)

    def marks(self, producer: str) -> dict[int, int]:
        return dict(self._call("marks", lambda: self._server().last(producer)))

    def forget(self, producer: str) -> None:
        self._call("forget", lambda: self._server().marks.pop(producer, None), True)

    def start(self) -> dict[int, int]:
        return dict(self._call("start", lambda: dict(self._server().begins)))

    def end(self, shards: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(shards, self._call("end", lambda: self._server().next))

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Stored]:
        yield from self._call("read", lambda: self._read(start, end))

    def _read(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[Stored]:
        server = self._server()
        gone = [shard for shard, at in start.items() if at < server.begins[shard] and at < end[shard]]
        if gone:
            raise InboxError(f"shard {gone[0]} was to be read from {start[gone[0]]}: that part was trimmed")
        found = (stored for _, stored in server.blocks)
        return [each for each in found if start.get(each.block.shard, 1 << 60) <= each.position < end[each.block.shard]]

    def trim(self, below: Mapping[int, int], older_than: Duration = "0 s") -> None:
        self._call("trim", lambda: self._server().trim(below, seconds(older_than, "older_than=")), True)

    def skip(self, shard: int, position: int, number: int) -> None:
        raise NotImplementedError("all simulated events can be read")

    def skipped(self) -> set[tuple[int, int, int]]:
        return set()

    def close(self) -> None:
        """Do nothing: the client has no connection of its own."""

    def _call(self, name: str, effect: Any, changes: bool = False) -> Any:
        return scheduler().network.call(f"inbox {name}", effect, InboxUnavailable, changes)  # type: ignore[attr-defined]

    @staticmethod
    def _server() -> InboxServer:
        return scheduler().inbox  # type: ignore[attr-defined,no-any-return]


def open_inbox(url: object, n_shards: int | None = None) -> Inbox:
    """Stand in for the function that opens the inbox of a URL."""
    return SimulatedInbox()
