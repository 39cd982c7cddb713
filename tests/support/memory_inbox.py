"""An inbox in memory that fails on request: for tests of routers and coordinators, which do not depend on its kind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from tidewheel.fleet import Inbox, InboxUnavailable
from tidewheel.fleet._inbox import Block, Stored
from tidewheel.fleet._inbox.base import is_duplicate


class MemoryInbox(Inbox):
    """`before` is called with each append before it is stored, `after` when it is: either may raise."""

    max_block_bytes = 2**20
    compresses = True

    def __init__(self, n_shards: int = 8) -> None:
        self.url, self.n_shards = "memory:inbox", n_shards
        self.log: list[Stored] = []
        self._next = 0
        self.appends = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self._marks: dict[str, dict[int, tuple[str, int]]] = {}
        self._lock = threading.Lock()

    def append(self, producer, session, blocks):
        self.appends += 1
        self.before()
        with self._lock:
            known = self._marks.setdefault(producer, {})
            for block in blocks:
                if not is_duplicate(block, session, known.get(block.shard, ("", 0)), producer, self.url):
                    self.log.append(Stored(self._next, producer, block))
                    self._next += 1
                    known[block.shard] = (session, block.last)
        self.after()

    def marks(self, producer):
        return {shard: number for shard, (_, number) in self._marks.get(producer, {}).items()}

    def start(self):
        return dict.fromkeys(range(self.n_shards), 0)

    def end(self, shards):
        return dict.fromkeys(shards, self._next)

    def read(self, start, end):
        for stored in list(self.log):
            shard = stored.block.shard
            if shard in start and start[shard] <= stored.position < end[shard]:
                yield stored

    def forget(self, producer):
        self._marks.pop(producer, None)

    def trim(self, below, older_than="0 s"):
        with self._lock:
            self.log = [stored for stored in self.log if stored.position >= below.get(stored.block.shard, 0)]

    def skip(self, shard, position, number):
        raise NotImplementedError

    def skipped(self):
        return set()

    def close(self):
        pass


def failing(times: int) -> Callable[[], None]:
    """Return a function that raises as a server out of reach does, so many times."""
    left = iter(range(times))

    def fail() -> None:
        if next(left, None) is not None:
            raise InboxUnavailable("the server is away")

    return fail


def whole(inbox: Inbox) -> list[Stored]:
    """Return all blocks of an inbox."""
    return list(inbox.read(inbox.start(), inbox.end(range(inbox.n_shards))))


def block(shard: int, first: int, *payloads: bytes) -> Block:
    from tidewheel.fleet._inbox import encode_events

    return Block(shard, first, len(payloads), encode_events([b"sk"] * len(payloads), list(payloads)))


def in_a_child(work: Callable[[], object]) -> str:
    """Fork, and return the name of what the work raises in the child; "" if nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        result = ""
        try:
            work()
        except BaseException as error:
            result = type(error).__name__
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result
