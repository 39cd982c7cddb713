"""reduce: fold all values of a key with a function of two values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    shuffle too, so the function runs in several places and must depend on its two values alone.
    """

    function: Callable[[Any, Any], Any]
    state: StateSpec
    kind = "reduce"
    stateful = True

    def start(self, context: Context) -> Process:
        """Start in a task."""
        return _Reducing(self, context)

    def combiner(self, operator: str) -> Combiner:
        """Return what folds before the shuffle."""
        return _Folded(self.function)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The result is what the values are."""
        return inputs

    @property
    def codec_name(self) -> str:
        """The codec of its state."""
        return self.state.resolved_codec().name


class _Folded(Combiner):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function
        self.folded: dict[Any, Any] = {}
        self.shape = Shape("any")

    def add(self, batch: Batch) -> Iterator[Batch]:
        self.shape = batch.shape
        folded, function = self.folded, self.function
        for key, value in zip(batch.keys, batch.values, strict=True):
            folded[key] = function(folded[key], value) if key in folded else value
        if len(folded) > _FLUSH_KEYS:
            yield from self.finish()

    def finish(self) -> Iterator[Batch]:
        if self.folded:
            yield Batch(self.shape, keys=list(self.folded), values=list(self.folded.values()))
            self.folded = {}


class _Reducing(Process):
    def __init__(self, operator: Reduce, context: Context) -> None:
        self.function, self.context = operator.function, context
        self.state = context.state(operator.state.resolved_codec(), lambda: None)
        self.touched: dict[Any, None] = {}
        self.shape: Shape | None = None

    def on_batch(self, batch: Batch, port: int) -> None:
        self.shape = batch.shape
        self.state.fetch(batch.keys)
        overlay, function = self.state.overlay, self.function
        for position, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            state = overlay[key]
            try:
                overlay[key] = value if state is None else function(state, value)
            except Exception as error:
                self.context.reject(error, batch, position)
        self.touched.update(dict.fromkeys(batch.keys))

    def on_end_of_data(self) -> None:
        if self.touched and self.shape is not None:
            keys = list(self.touched)
            self.context.emit(Batch(self.shape, keys=keys, values=[self.state.get(key) for key in keys]))
            self.touched = {}
