"""reduce: fold all values of a key with a function of two values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from tidewheel.operators.base import Context, Operator, Process
from tidewheel.operators.combine import Combiner
from tidewheel.operators.stateful_map import StateSpec
from tidewheel.values import Batch, Shape

_FLUSH_KEYS = 200_000


@dataclass(frozen=True)
class Reduce(Operator):
    """Fold the values of each key: `function(left, right)`, which must be associative.

    The result so far is emitted once per batch for every key that the batch touched. Values are folded before the
    shuffle too, so the function runs in several places and must depend on its two values alone. A value of None is
    nothing to fold, and a result of None drops the key's state.
    """

    function: Callable[[Any, Any], Any]
    state: StateSpec
    kind = "reduce"
    stateful = True
    combines = True

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Reducing(self, context)

    def combiner(self, context: Context) -> Combiner:
        """Return what folds before the shuffle."""
        return _Folded(_Folding(self.function, context), context)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The result is what the values are."""
        return inputs

    @property
    def codec_name(self) -> str:
        """The codec of its state."""
        return self.state.resolved_codec().name


class _Folding:
    """The function, and what happens when it fails: the record is rejected, and what was folded before it stays."""

    def __init__(self, function: Callable[[Any, Any], Any], context: Context) -> None:
        self.function, self.context = function, context
        self.careful = context.keeps_rejected()

    def fold(self, folded: MutableMapping[Any, Any], batch: Batch) -> None:
        """Fold each value into that of its key; None there says that there is nothing yet."""
        function, careful = self.function, self.careful
        for position, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            left = folded.get(key)
            if left is None:
                folded[key] = value
            elif value is not None:
                try:
                    # A function that changes its left value and then fails must have changed a copy.
                    folded[key] = function(copy.deepcopy(left) if careful else left, value)
                except Exception as error:
                    self.context.reject(error, batch, position)


class _Folded(Combiner):
    def __init__(self, folding: _Folding, context: Context) -> None:
        self.folding, self.context = folding, context
        self.folded: dict[Any, Any] = {}

    def add(self, batch: Batch) -> Iterator[Batch]:
        self.folding.fold(self.folded, batch)
        if len(self.folded) > _FLUSH_KEYS:
            yield from self.finish()

    def finish(self) -> Iterator[Batch]:
        if self.folded:
            yield Batch(self.context.shapes[0], keys=list(self.folded), values=list(self.folded.values()))
            self.folded = {}


class _Reducing(Process):
    def __init__(self, operator: Reduce, context: Context) -> None:
        self.context = context
        self.folding = _Folding(operator.function, context)
        self.state = context.state(operator.state.resolved_codec(), lambda: None)
        self.touched: dict[Any, None] = {}

    def on_batch(self, batch: Batch, port: int) -> None:
        self.state.fetch(batch.keys)
        self.folding.fold(self.state.overlay, batch)
        self.touched.update(dict.fromkeys(batch.keys))

    def on_end_of_data(self) -> None:
        if self.touched:
            keys = list(self.touched)
            self.context.emit(Batch(self.context.shapes[0], keys=keys, values=[self.state.get(key) for key in keys]))
            self.touched = {}
