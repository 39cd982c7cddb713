"""reduce: fold all values of a key with a function of two values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from tidewheel._operators.base import Context, Conversion, Operator, Process, readable
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.refused_state import keep_states
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.ttl import conversion_to
from tidewheel._state.layout import StateLayout
from tidewheel._values import Batch, Shape

_FLUSH_KEYS = 200_000


@dataclass(frozen=True)
class Reduce(Operator):
    """Fold the values of each key with `function(left, right)`, which must be associative.

    The result so far is emitted once per batch for every key with messages in the batch. Values are also folded before
    the shuffle, so the function runs in several places and must depend only on its two arguments. A value of None is
    skipped, and a result of None deletes the state of the key. A result has the latest timestamp of its key's messages in
    the batch.
    """

    function: Callable[[Any, Any], Any]
    state: StateSpec
    kind = "reduce"
    stateful = True
    combines = True

    def start(self, context: Context) -> Process:
        return _Reducing(self, context)

    def combiner(self, context: Context) -> Combiner:
        return _Folded(_Folding(self.function, context, self.state.resolved_codec().encode), context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return inputs

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": self.state}

    @property
    def codec_name(self) -> str:
        return self.state.resolved_codec().name

    def conversion(self, layout: StateLayout) -> Conversion | None:
        return conversion_to(None, layout)


class _Folding:
    """Call the function; if it fails, reject the record and keep the previous result.

    With dead letters, `check` is called with each result, and raises an error if the result cannot be stored.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], context: Context, check: Callable[[Any], object] | None = None
    ) -> None:
        self.function, self.context, self.check = function, context, check
        self.careful = context.keeps_rejected()

    def fold(self, folded: MutableMapping[Any, Any], batch: Batch) -> None:
        """Fold each value into the result of its key; None means that there is no result yet."""
        function = self.function
        for position, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            left = folded.get(key)
            try:
                if self.careful:
                    folded[key] = self._checked(left, value)
                elif left is None:
                    folded[key] = value
                elif value is not None:
                    folded[key] = function(left, value)
            except Exception as error:
                self.context.reject(error, batch, position)
                folded.setdefault(key, None)

    def _checked(self, left: Any, value: Any) -> Any:
        # Pass a copy: the function may change its left value and then fail.
        new = self.folded(copy.deepcopy(left), value)
        if self.check is not None and new is not None:
            self.check(new)
        return new

    def folded(self, left: Any, value: Any) -> Any:
        """Fold two values; None means that there is no value."""
        return value if left is None else left if value is None else self.function(left, value)


class _Touched:
    """The keys with messages, each with its latest timestamp, if there is one."""

    def __init__(self) -> None:
        self.latest: dict[Any, int | None] = {}

    def add(self, batch: Batch) -> None:
        if batch.times is None:
            self.latest.update(dict.fromkeys(batch.keys))
            return
        latest = self.latest
        for key, time in zip(batch.keys, batch.times, strict=True):
            before = latest.get(key)
            if before is None or time > before:
                latest[key] = time

    def finish(self, shape: Shape, value_of: Callable[[Any], Any]) -> Batch:
        """Return a message for each key with messages, and start again empty."""
        keys, times = list(self.latest), list(self.latest.values())
        self.latest = {}
        timed = any(time is not None for time in times)
        return Batch(shape, keys=keys, values=list(map(value_of, keys)), times=times if timed else None)  # type: ignore[arg-type]


class _Folded(Combiner):
    def __init__(self, folding: _Folding, context: Context) -> None:
        self.folding, self.context = folding, context
        self.folded: dict[Any, Any] = {}
        self.touched = _Touched()

    def add(self, batch: Batch) -> Iterator[Batch]:
        batch = readable(self.context, batch)
        self.folding.fold(self.folded, batch)
        self.touched.add(batch)
        if len(self.folded) > _FLUSH_KEYS:
            yield from self.finish()

    def finish(self) -> Iterator[Batch]:
        if self.folded:
            folded, self.folded = self.folded, {}
            yield self.touched.finish(self.context.shapes[0], folded.__getitem__)


class _Reducing(Process):
    def __init__(self, operator: Reduce, context: Context) -> None:
        self.context = context
        codec = operator.state.resolved_codec()
        self.folding = _Folding(operator.function, context, codec.encode)
        self.state = context.state(codec, lambda: None)
        self.messages = MessageBuffer()
        self.touched = _Touched()

    def on_batch(self, batch: Batch, port: int) -> None:
        self.messages.add(batch, self._process)

    def _process(self, batch: Batch) -> None:
        batch = readable(self.context, batch)
        key_batch = self.state.open(batch.keys_made, batch.key_data)
        folded = dict(zip(key_batch.keys, key_batch.states, strict=True))
        self.folding.fold(folded, batch)
        key_batch.states = [folded[key] for key in key_batch.keys]

        def handle(position: int, left: Any) -> Any:
            return self.folding.folded(left, batch.values[position])

        keep_states(self.state, key_batch, key_batch.places, batch, self.context, handle)
        self.touched.add(batch)

    def on_end_of_data(self) -> None:
        self.messages.finish(self._process)
        if self.touched.latest:
            self.context.emit(self.touched.finish(self.context.shapes[0], self.state.get))
