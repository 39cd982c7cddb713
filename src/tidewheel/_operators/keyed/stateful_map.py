"""stateful_map: one message in, one out, with a state per key."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tidewheel._core.bytecode_reads import analyse_reads
from tidewheel._operators.annotations import returned
from tidewheel._operators.base import (
    Context,
    Conversion,
    Operator,
    Process,
    Reads,
    reads_of_function,
    values_of,
    without,
)
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._operators.keyed.refused_state import keep_states
from tidewheel._operators.keyed.state_spec import IMMUTABLE, StateSpec
from tidewheel._operators.keyed.ttl import Ttl, TtlProcess, check_times, conversion_to, layout_of, waits_of
from tidewheel._state.key_batch import KeyBatch
from tidewheel._state.layout import StateLayout
from tidewheel._values import Batch, Shape, shape_of
from tidewheel.errors import StepError


@dataclass(frozen=True)
class StatefulMap(Operator):
    """Call `function(key, value, state)` for each message; it returns `(output, new_state)`.

    A `new_state` of None deletes the state of the key. Every message has exactly one output, which may be None.
    """

    function: Callable[[Any, Any, Any], tuple[Any, Any]]
    state: StateSpec
    returns: Any = None
    ttl: Ttl | None = None
    kind = "stateful_map"
    stateful = True
    order_matters = True

    def start(self, context: Context) -> Process:
        process = _Mapping(self, context)
        return process if self.ttl is None else TtlProcess(process, process.state, self.ttl, context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The declared type, or the first type of the annotated pair."""
        annotated = typing.get_args(returned(self.function))
        return (shape_of(self.returns or (annotated[0] if len(annotated) == 2 else None)),)

    def reads_by_code(self, shape: Shape) -> Reads | None:
        return reads_of_function(analyse_reads(self.function, 1), shape)

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"": self.state}

    @property
    def codec_name(self) -> str:
        return self.state.resolved_codec().name

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        check_times(self.ttl, inputs)
        return super().timed(inputs)

    @property
    def waits_for_epochs(self) -> str:
        return waits_of(self.ttl)

    @property
    def driven_by_time(self) -> bool:
        return self.ttl is not None

    @property
    def state_layout(self) -> StateLayout:
        return layout_of(self.ttl)

    def conversion(self, layout: StateLayout) -> Conversion | None:
        return conversion_to(self.ttl, layout)


class _Mapping(Process):
    def __init__(self, operator: StatefulMap, context: Context) -> None:
        self.function, self.context = operator.function, context
        self.read = analyse_reads(operator.function, 1)
        self.codec = operator.state.resolved_codec()
        self.state = context.state(self.codec, operator.state.factory())
        self.messages = MessageBuffer()

    def on_batch(self, batch: Batch, port: int) -> None:
        self.messages.add(batch, self._process)

    def on_end_of_data(self) -> None:
        self.messages.finish(self._process)

    def _process(self, batch: Batch) -> None:
        if not self.context.keeps_rejected():
            key_batch = self.state.open(batch.keys_made, batch.key_data)
            if self._by_key(key_batch, batch):
                return
        values, unreadable = values_of(self.context, batch, self.read)
        if unreadable or self.context.keeps_rejected():
            batch = without(batch, unreadable)
            key_batch = self.state.open(batch.keys_made, batch.key_data)
        rest = zip(key_batch.places(), values, strict=True)
        out: list[Any] = []
        rejected: list[int] = []
        run = self._careful if self.context.keeps_rejected() else self._fast
        while True:
            try:
                run(key_batch.keys, rest, key_batch.states, out)
                break
            except Exception as error:
                position = len(out) + len(rejected)
                self.context.reject(self._explained(error), batch, position)
                rejected.append(position)
        self._keep(key_batch, key_batch.places, batch)
        self.context.emit(without(batch, rejected).with_values(self.context.shapes[0], out))

    def _by_key(self, key_batch: KeyBatch, batch: Batch) -> bool:
        """Handle the messages key by key, if there are many, and return whether they were handled.

        The output has the same order: the order between keys is undefined.
        """
        if not batch.is_columns_only:
            return False
        together = key_batch.together()
        if together is None:
            return False
        order, counts = together
        batch = batch.reordered(order)
        function, default = self.function, self.state.default
        rest = iter(values_of(self.context, batch, self.read)[0])
        out: list[Any] = []
        left: list[Any] = []
        append, keep = out.append, left.append
        try:
            for key, count, state in zip(key_batch.keys, counts, key_batch.states, strict=True):
                if count == 1:
                    pair = function(key, next(rest), default() if state is None else state)
                    if pair.__class__ is not tuple:
                        _check_pair(function, pair)
                    result, state = pair
                    append(result)
                else:
                    for value in islice(rest, count):
                        pair = function(key, value, default() if state is None else state)
                        if pair.__class__ is not tuple:
                            _check_pair(function, pair)
                        result, state = pair
                        append(result)
                keep(state)
        except Exception as error:
            self.context.reject(self._explained(error), batch, len(out))
        key_batch.states = left
        self._keep(key_batch, lambda: [place for place, count in enumerate(counts) for _ in range(count)], batch)
        self.context.emit(batch.with_values(self.context.shapes[0], out))
        return True

    def _keep(self, key_batch: KeyBatch, places: Callable[[], list[int]], batch: Batch) -> None:
        def handle(position: int, state: Any) -> Any:
            return self.function(batch.keys[position], batch.values[position], state)[1]

        keep_states(self.state, key_batch, places, batch, self.context, handle)

    def _fast(self, keys: list[Any], rest: Iterator[tuple[int, Any]], states: list[Any], out: list[Any]) -> None:
        """Handle the remaining messages, by the index of their keys, until one fails or none is left."""
        function, default, append = self.function, self.state.default, out.append
        for at, value in rest:
            state = states[at]
            if state is None:
                state = default()
            pair = function(keys[at], value, state)
            if pair.__class__ is not tuple:
                _check_pair(function, pair)
            result, states[at] = pair
            append(result)

    def _careful(self, keys: list[Any], rest: Iterator[tuple[int, Any]], states: list[Any], out: list[Any]) -> None:
        """Like `_fast`, but check after each message that its state can be stored, and restore the old state otherwise.

        The old state is kept as bytes, because a function may change its state in place and then fail.
        """
        function, default, append = self.function, self.state.default, out.append
        encode, decode = self.codec.encode, self.codec.decode
        encoded: dict[int, bytes] = {}
        for at, value in rest:
            state = states[at]
            before = None
            if not isinstance(state, IMMUTABLE):
                before = encoded[at] if at in encoded else encode(state)
            try:
                pair = function(keys[at], value, default() if state is None else state)
                if pair.__class__ is not tuple:
                    _check_pair(function, pair)
                result, new = pair
                if new is not None:
                    encoded[at] = encode(new)
            except Exception:
                if before is not None:
                    states[at] = decode(before)
                raise
            states[at] = new
            append(result)

    def _explained(self, error: Exception) -> Exception:
        """Explain the expected result if the function returned a tuple of another length; keep its own errors unchanged."""
        depth, where = 0, error.__traceback__
        while where is not None:
            depth, where = depth + 1, where.tb_next
        if depth <= 2 and isinstance(error, ValueError) and "unpack" in str(error):
            return StepError(f"{_expected(self.function)}, not a tuple of another length: {error}")
        return error


def _check_pair(function: Callable[..., Any], pair: Any) -> None:
    """Raise an error for other values with two elements: a str, a set, a dict."""
    if not isinstance(pair, tuple):
        raise StepError(f"{_expected(function)}, not {pair!r} of type {type(pair).__name__}")


def _expected(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"the function {name} must return a 2-tuple (output, new_state)"
