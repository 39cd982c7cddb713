"""What an operator is: a description in the graph, and a process while a task runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from tidewheel.values import ANY, Batch, Shape

if TYPE_CHECKING:
    from tidewheel.state.codec import Codec
    from tidewheel.state.view import KeyedState, RawTable

Emit = Callable[[Batch], None]


class Context(Protocol):
    """What a task gives an operator for the length of one batch."""

    operator: str
    now: int
    """The pinned time of the batch, in ns since the Unix epoch: the same in every task of the batch."""
    last_epoch: int | None
    """The epoch that went out before this batch."""

    def emit(self, batch: Batch, port: int = 0) -> None:
        """Send messages to whatever follows the operator."""

    def write(self, columns: pa.RecordBatch) -> None:
        """Stage rows in the sink that the operator is."""

    def reject(self, error: Exception, batch: Batch, position: int) -> None:
        """Put a record that the user's function refused into the dead-letter sink, or raise an `OperatorError`."""

    def keeps_rejected(self) -> bool:
        """Whether a refused record goes to a dead-letter sink and the batch goes on."""

    def state(self, codec: Codec, default: Callable[[], Any], table: str = "") -> KeyedState:
        """Return the operator's keyed state; `table` names a second one beside it."""

    def raw_table(self) -> RawTable:
        """Return the operator's state as stored keys and bytes, for operators that work on arrays."""

    def shards(self) -> Iterable[int]:
        """Return the shards of this task that have state or got data."""


class Process(ABC):
    """An operator at work in one task, for one batch."""

    @abstractmethod
    def on_batch(self, batch: Batch, port: int) -> None:
        """Handle messages that arrived at an input port."""

    def on_end_of_data(self) -> None:  # noqa: B027
        """Do what waits for all data of the batch."""

    def on_schedule(self) -> None:  # noqa: B027
        """Do what is due by the pinned time."""

    def on_epoch(self, epoch: int) -> None:  # noqa: B027
        """Handle the epoch, after all data."""


class Operator(ABC):
    """A step of the program. It travels to the tasks, so it holds what the user gave and nothing that runs."""

    kind: ClassVar[str]
    ports: ClassVar[int] = 1
    stateful: ClassVar[bool] = False

    @abstractmethod
    def start(self, context: Context) -> Process:
        """Return the process that does the work in a task."""

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Return the shape of the values at each output port."""
        return (ANY,)

    def check(self, inputs: tuple[Shape, ...]) -> None:  # noqa: B027
        """Refuse, with a `GraphError`, inputs that can never work; called when the graph is built."""

    @property
    def driven_by_time(self) -> bool:
        """Whether epochs or schedules make it act without data."""
        return False

    @property
    def codec_name(self) -> str:
        """The codec of its state, for the manifest; empty for operators without state."""
        return ""


def each(context: Context, batch: Batch, step: Callable[[Iterator[Any]], Any]) -> list[int]:
    """Run `step` over the batch's values, and return the positions of those that were rejected.

    `step` takes an iterator and uses it up. When the user's function raises, the record it was given is rejected and
    `step` goes on behind it: a list's iterator knows how much is left, which tells the position at no cost per record.
    """
    values = batch.values
    rest = iter(values)
    rejected: list[int] = []
    while True:
        try:
            step(rest)
        except Exception as error:
            position = len(values) - length_hint(rest) - 1
            context.reject(error, batch, position)
            rejected.append(position)
        else:
            return rejected


def without(batch: Batch, rejected: list[int]) -> Batch:
    """Return the batch without the rejected positions; the usual case, none, costs nothing."""
    if not rejected:
        return batch
    gone = set(rejected)
    return batch.take([position for position in range(len(batch)) if position not in gone])
