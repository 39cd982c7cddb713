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
from tidewheel._operators.stateless.calls import CallOptions, Calls, CallStatistics, Failed, current_key, kept_calls
from tidewheel._values import Batch, Shape, shape_of
from tidewheel.errors import StepError

_content = msgspec.msgpack.Encoder(order="deterministic", enc_hook=pickling.dumps)

_FULL = 50
"""Calls are made when this many values per concurrent call have arrived: fewer would leave callers idle at the end."""


@dataclass(frozen=True, eq=False)
class MapAsync(Operator):
    """Replace each value by the result of a call; a batch waits for its calls, and results keep the order of the values."""

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
        self.calls = kept_calls(
            operator,
            lambda: Calls(operator.function, operator.options, operator.retry, operator.open, operator.close),
        )
        self.waiting: list[Batch] = []
        self.occurrences: dict[str, int] = {}
        self.lock = threading.Lock()

    def on_batch(self, batch: Batch, port: int) -> None:
        self.waiting.append(batch)
        if sum(map(len, self.waiting)) >= _FULL * self.operator.options.concurrency * (
            self.operator.options.batch or 1
        ):
            self._call()

    def on_end_of_data(self) -> None:
        if self.waiting:
            self._call()

    def _call(self) -> None:
        batches, self.waiting = self.waiting, []
        batch = readable(self.context, Batch.joined(batches))
        asked = batch.values
        if self.operator.on is not None:
            asked, rejected = each(self.context, batch, self.operator.on)
            batch = without(batch, rejected)
        statistics = CallStatistics()
        try:
            results = self.calls.results(asked, self._keys(batch), statistics)
        except Exception as error:
            self.context.check_transient(error)
            raise StepError(f"step {self.context.operator!r}: open= failed: {summary(error)}") from error
        self._count(statistics)
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

    def _count(self, statistics: CallStatistics) -> None:
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


def idempotency_key() -> str:
    """Return a text that identifies the current call of `map_async`, for a service that ignores repeated requests.

    A batch that runs again, after an error or a crash, calls again: the same record then has the same key. Different
    records have different keys. With `batch=`, the key is that of the first record of the call.
    """
    try:
        return current_key.get()()
    except LookupError:
        raise StepError("idempotency_key() is known only inside of a function of map_async") from None
