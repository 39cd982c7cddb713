"""map_async: one value in, one result of a slow call out, with many calls at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from tidewheel._core import pickling
from tidewheel._core.user_code import summary
from tidewheel._operators.annotations import returned
from tidewheel._operators.base import Context, Operator, Process, each, readable, without
from tidewheel._operators.stateless.call_queue import Block, CallQueue
from tidewheel._operators.stateless.calls import CallOptions, Calls, CallStatistics, Failed, current_key, kept_calls
from tidewheel._values import Batch, Shape, shape_of
from tidewheel.errors import StepError

_content = msgspec.msgpack.Encoder(order="deterministic", enc_hook=pickling.dumps)

_BLOCK = 100
"""At least how many messages are passed on together."""
_AHEAD = 50
"""How many blocks may wait while the task reads on."""


@dataclass(frozen=True, eq=False)
class MapAsync(Operator):
    """Replace each value by the result of a call; a batch waits for its calls."""

    function: Callable[..., Any]
    options: CallOptions
    returns: Any = None
    on: Callable[[Any], Any] | None = None
    """Returns the part of a value that the function is called with; None: the value itself."""
    combine: Callable[[Any, Any], Any] | None = None
    """Called with the value and the result; None: the result itself."""
    open: Callable[[], Any] | None = None
    close: Callable[[Any], Any] | None = None
    retry: tuple[type[Exception], ...] = ()
    ordered: bool = True
    """Whether results keep the order of all values; otherwise only that of each key."""
    kind = "map_async"

    def start(self, context: Context) -> Process:
        return _Calling(self, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type, or the annotation of the function that makes the values."""
        if self.returns is None and self.options.batch is not None and self.combine is None:
            return (shape_of(None),)
        return (shape_of(self.returns or returned(self.combine or self.function)),)


class _Calling(Process):
    def __init__(self, operator: MapAsync, context: Context) -> None:
        self.operator, self.context = operator, context
        calls = kept_calls(
            operator,
            lambda: Calls(operator.function, operator.options, operator.retry, operator.open, operator.close),
        )
        self.queue = CallQueue(calls)
        self.rest: list[Batch] = []
        """Messages that are fewer than a block."""
        self.blocks: list[tuple[Batch, Block]] = []
        """Messages that wait for their results, or for those of messages before them."""
        size = operator.options.batch or 1
        self.size = size * max(operator.options.concurrency, -(-_BLOCK // size))
        self.occurrences: dict[str, int] = {}
        self.lock = threading.Lock()

    def on_batch(self, batch: Batch, port: int) -> None:
        self.rest.append(batch)
        if sum(map(len, self.rest)) >= self.size:
            self._ask(whole=False)
            self._pass_on(_AHEAD)

    def on_end_of_data(self) -> None:
        if self.rest:
            self._ask(whole=True)
        self._pass_on(0)
        self._count()

    def close(self) -> None:
        self.queue.close()

    def _ask(self, *, whole: bool) -> None:
        """Begin the calls for the messages that fill blocks, or for all."""
        batch, self.rest = Batch.joined(self.rest), []
        full = len(batch) if whole else len(batch) // self.size * self.size
        if full < len(batch):
            self.rest, batch = [_part(batch, full, len(batch))], _part(batch, 0, full)
        batch = readable(self.context, batch)
        asked = batch.values
        if self.operator.on is not None:
            asked, rejected = each(self.context, batch, self.operator.on)
            batch = without(batch, rejected)
        begun = []
        for start in range(0, len(batch), self.size):
            end = min(start + self.size, len(batch))
            part = _part(batch, start, end)
            begun.append((part, Block(asked[start:end], self._keys(part))))
        try:
            self.queue.add([block for _, block in begun])
        except Exception as error:
            self.context.check_transient(error)
            raise StepError(f"step {self.context.operator!r}: open= failed: {summary(error)}") from error
        self.blocks += begun

    def _pass_on(self, left: int) -> None:
        """Emit the blocks whose turn it is, until at most `left` of them are waiting."""
        while True:
            ready = self._ready()
            if ready:
                self._emit(ready)
            if len(self.blocks) <= left:
                return
            try:
                self.queue.wait()
            except Exception as error:
                self.context.check_transient(error)
                raise

    def _ready(self) -> list[tuple[Batch, Block]]:
        """Return the blocks to emit now. A block waits for those before it, if they are ordered or have one of its keys."""
        ready: list[tuple[Batch, Block]] = []
        waiting: list[tuple[Batch, Block]] = []
        held: set[Any] = set()
        for batch, block in self.blocks:
            in_turn = not waiting or not (self.operator.ordered or (batch.keyed and not held.isdisjoint(batch.keys)))
            if in_turn and not block.missing:
                ready.append((batch, block))
                continue
            waiting.append((batch, block))
            if self.operator.ordered:
                waiting = self.blocks[len(ready) :]
                break
            if batch.keyed:
                held.update(batch.keys)
        self.blocks = waiting
        return ready

    def _emit(self, blocks: list[tuple[Batch, Block]]) -> None:
        batch = Batch.joined([batch for batch, _ in blocks])
        results = [result for _, block in blocks for result in block.results]
        failed = [position for position, result in enumerate(results) if isinstance(result, Failed)]
        for position in failed:
            self.context.reject(results[position].error, batch, position)
        batch = without(batch, failed)
        results = [result for result in results if not isinstance(result, Failed)]
        if self.operator.combine is not None:
            combine, rest = self.operator.combine, iter(results)
            results, rejected = each(self.context, batch, lambda value: combine(value, next(rest)))
            batch = without(batch, rejected)
        self.context.emit(batch.with_values(self.context.shapes[0], results))

    def _count(self) -> None:
        statistics, self.queue.statistics = self.queue.statistics, CallStatistics()
        if not statistics.calls + statistics.cached:
            return
        for label in ("calls", "failures", "cached"):
            if number := getattr(statistics, label):
                self.context.count(label, number)
        self.context.count("call_ms", round(statistics.seconds * 1e3))

    def _keys(self, batch: Batch) -> Callable[[int], str]:
        """Return the function that makes the idempotency key of a record, at most once for each record.

        The key has the content of the record, so that two records never share one: a batch that runs again may have taken
        in more input. Equal records are numbered.
        """
        identity = self.context.batch_identity(keyed=batch.keyed)
        made: dict[int, str] = {}

        def key(position: int) -> str:
            with self.lock:
                if position not in made:
                    of = batch.keys[position] if batch.keyed else None
                    digest = xxh3_128_hexdigest(_content.encode((identity, of, batch.values[position])))
                    self.occurrences[digest] = number = self.occurrences.get(digest, 0) + 1
                    made[position] = f"{digest}-{number}"
                return made[position]

        return key


def _part(batch: Batch, start: int, end: int) -> Batch:
    return batch if end - start == len(batch) else batch.take(list(range(start, end)))


def idempotency_key() -> str:
    """Return a text that identifies the current call of `map_async`, for a service that ignores repeated requests.

    A batch that runs again, after an error or a crash, calls again: the same record then has the same key. Different
    records have different keys. With `batch=`, the key is that of the first record of the call.
    """
    try:
        return current_key.get()()
    except LookupError:
        raise StepError("idempotency_key() is known only inside of a function of map_async") from None
