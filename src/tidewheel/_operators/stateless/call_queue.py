"""CallQueue: the values of a batch that wait for their calls; a bounded number of calls is in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tidewheel._core import event_loop
from tidewheel._operators.stateless.calls import Calls, CallStatistics, cache_key


class Block:
    """Values that are passed on together, and their results so far."""

    def __init__(self, values: Sequence[Any], key: Callable[[int], str]) -> None:
        """Take the values; `key` returns the idempotency key of the value at a position."""
        self.values, self.key = values, key
        self.results: list[Any] = [None] * len(values)
        """The result for each value, or a `Failed`; valid once none is missing."""
        self.missing = len(values)


@dataclass(eq=False, slots=True)
class _Asked:
    """A value that the function is called with, and the places that wait for its result."""

    value: Any
    places: list[tuple[Block, int]]

    def key(self) -> str:
        block, position = self.places[0]
        return block.key(position)


class CallQueue:
    """The calls of one task during one batch. They run while the task continues; only the event loop uses the state."""

    def __init__(self, calls: Calls) -> None:
        self._calls, self.statistics = calls, CallStatistics()
        self._groups: deque[list[_Asked]] = deque()
        self._asked: dict[Hashable, _Asked] = {}
        """The values that wait for a result that will be cached."""
        self._workers: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._changed = asyncio.Event()

    def add(self, blocks: list[Block]) -> None:
        """Begin the calls for these blocks. Raise the error of `open=`, if it fails."""
        event_loop.run(self._add(blocks))

    def wait(self) -> None:
        """Return when another block has all its results. Raise a transient error that has outlasted its retries."""
        event_loop.run(self._wait())

    def close(self) -> None:
        """Stop the calls that are in flight, if there are any."""
        if self._workers:
            event_loop.run(self._close())

    async def _add(self, blocks: list[Block]) -> None:
        await self._calls.open()
        size = self._calls.options.batch or 1
        for block in blocks:
            asked = [
                each
                for position, value in enumerate(block.values)
                if (each := self._to_ask(value, block, position)) is not None
            ]
            self._groups += [asked[begin : begin + size] for begin in range(0, len(asked), size)]
        for _ in range(min(self._calls.options.concurrency - len(self._workers), len(self._groups))):
            self._workers.add(asyncio.create_task(self._work()))

    def _to_ask(self, value: Any, block: Block, position: int) -> _Asked | None:
        """Return a value that needs a call of its own; note its result, or that it waits for that of an equal one, otherwise."""
        if not self._calls.options.cache:
            return _Asked(value, [(block, position)])
        cached = self._calls.cached(value)
        if cached is not None:
            self.statistics.cached += 1
            self._settle(block, position, cached[0])
            return None
        key = cache_key(value)
        if key in self._asked:
            self.statistics.cached += 1
            self._asked[key].places.append((block, position))
            return None
        self._asked[key] = _Asked(value, [(block, position)])
        return self._asked[key]

    async def _work(self) -> None:
        try:
            while self._groups and self._error is None:
                group = self._groups.popleft()
                values = [each.value for each in group]
                results = await self._calls.results(values, group[0].key, self.statistics)
                for each, result in zip(group, results, strict=True):
                    if self._calls.options.cache:
                        del self._asked[cache_key(each.value)]
                    for block, position in each.places:
                        self._settle(block, position, result)
        except Exception as error:
            self._error = self._error or error
            self._changed.set()
        finally:
            # At once: a worker that is listed takes further groups.
            self._workers.discard(asyncio.current_task())

    def _settle(self, block: Block, position: int, result: Any) -> None:
        block.results[position] = result
        block.missing -= 1
        if not block.missing:
            self._changed.set()

    async def _wait(self) -> None:
        await self._changed.wait()
        self._changed.clear()
        if self._error is not None:
            raise self._error

    async def _close(self) -> None:
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
