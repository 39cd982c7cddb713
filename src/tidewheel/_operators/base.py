"""The interface of a step: a description in the graph, and a process while a task runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from tidewheel._core.bytecode_reads import FieldsRead
from tidewheel._core.text import with_article
from tidewheel._core.user_code import summary
from tidewheel._state.layout import StateLayout
from tidewheel._values import ANY, Batch, Shape
from tidewheel.errors import StepError

if TYPE_CHECKING:
    from tidewheel._connectors.tables.table import Table
    from tidewheel._operators.keyed.combiner import Combiner
    from tidewheel._operators.keyed.state_spec import StateSpec
    from tidewheel._state.codec import StateCodec
    from tidewheel._state.keyed_state import KeyedState
    from tidewheel._state.raw_table import RawTable
    from tidewheel._state.row_table import RepeatedRows, RowTable
    from tidewheel._state.timers import TimerTable
    from tidewheel._time.frontier import Input
    from tidewheel._values.keyed_table import KeyedRows


class Context(Protocol):
    """The services that a task offers a step during one batch."""

    operator: str
    shapes: tuple[Shape, ...]
    """The shapes of the values at the outputs, from the graph: annotations can be read only in the driver."""
    now: int
    """The pinned time of the batch, in ns since the Unix epoch: the same in every task of the batch."""
    timestamps: bool
    """Whether users see times as datetimes; otherwise as ns."""
    last_epoch: int | None
    """The epoch that was sent before this batch."""
    epoch: int | None
    """The epoch that is sent after the data of this batch, if it is new."""

    def emit(self, batch: Batch, port: int = 0) -> None:
        """Send messages to the next steps."""

    def write(self, columns: pa.RecordBatch) -> None:
        """Write rows to the step's sink."""

    def reject(self, error: Exception, batch: Batch, position: int, *, stop: bool = False) -> None:
        """Handle an error of one record. All steps use this method, so that every error is handled in the same way.

        A transient error raises `Retry`, and the batch runs again. Any other error sends the record to the dead-letter
        sink or, without such a sink or with `stop`, raises a `StepError` that names the step, the key and the
        record.
        """

    def check_transient(self, error: Exception) -> None:
        """Raise `Retry` if an error is transient. Use it for errors that belong to no single record."""

    def keeps_rejected(self) -> bool:
        """Whether rejected records go to a dead-letter sink, so that the batch continues."""

    def table(self, table: Table) -> KeyedRows:
        """Return the version of a reference table that the batch has pinned."""

    def state(self, codec: StateCodec, default: Callable[[], Any], table: str = "") -> KeyedState:
        """Return the keyed state of the step, or its additional table of this name."""

    def raw_table(self) -> RawTable:
        """Return the step's state as stored keys and bytes, for steps that work on arrays."""

    def row_table(self) -> RowTable | RepeatedRows:
        """Return the step's state as rows of one width, for steps that keep one row per key."""

    def timers(self, table: str = "timers") -> TimerTable:
        """Return the timers of the step, or those of an additional table, whose name ends with "timers"."""

    def columns_read(self) -> Collection[str] | None:
        """Return the columns of the step's first output that later steps read; None: perhaps all."""

    def clock(self) -> int | None:
        """Return the newest known epoch: that of this batch, or the one before it."""

    def report_clock_input(self, name: str, epoch: int | None) -> None:
        """Report that an input of the clock has data, and the epoch that results from the data, if any."""

    def keyed(self, kinds: Mapping[str, set[str]]) -> None:
        """Report the types of the step's keys, as `kinds_of` returns them. Mixed types raise a `StepError`."""

    def batch_identity(self, *, keyed: bool) -> str:
        """Return a text for the step and the batch that is the same if the batch runs again.

        Messages without a key have one for each task, since nothing else keeps equal messages of two tasks apart.
        """

    def count(self, label: str, number: int) -> None:
        """Add to a counter of the step, `step/label` in the manifest."""

    def shards(self) -> Iterable[int]:
        """Return the shards of this task that have state or received data."""

    def shards_awake(self, timers: TimerTable) -> Iterable[int]:
        """Return the shards of this task that may have a due timer."""

    def all_shards(self) -> Iterable[int]:
        """Return all shards of this task, with or without state and data."""


@dataclass(frozen=True)
class Reads:
    """The input columns that a step reads, and the outputs that pass its input values on unchanged."""

    columns: Collection[str]
    passed_on: tuple[int, ...] = ()
    made: Collection[str] = ()
    """Columns of passed-on values that the step adds itself: its input need not have them."""


@dataclass(frozen=True)
class Conversion:
    """How to convert the stored state of a key for the current step."""

    convert: Callable[[bytes], bytes] | None
    """Converts one stored state; None leaves states unchanged."""
    said: str
    """The text that the start of the job reports."""
    emptied: tuple[str, ...] = ()
    """The additional tables of the step that start empty."""


class Process(ABC):
    """The work of a step in one task, for one batch."""

    @abstractmethod
    def on_batch(self, batch: Batch, port: int) -> None:
        """Handle messages that arrived at an input port."""

    def on_end_of_data(self) -> None:  # noqa: B027
        """Do the work that needs all data of the batch."""

    def on_schedule(self) -> None:  # noqa: B027
        """Do the work that is due at the time of the batch."""

    def on_epoch(self, epoch: int) -> None:  # noqa: B027
        """Handle the epoch, after all data."""

    def close(self) -> None:  # noqa: B027
        """Release all resources. Called once, also after an error."""


class Operator(ABC):
    """A step of the program. It is sent to the tasks, so it holds the user's arguments and no open resources."""

    kind: ClassVar[str]
    ports: ClassVar[int] = 1
    stateful: ClassVar[bool] = False
    combines: ClassVar[bool] = False
    """Whether it has a combiner, which reduces its input before the shuffle."""
    shuffles: ClassVar[bool] = False
    """Whether a shuffle follows, so that the next steps run in the task of each key."""
    needs_time: ClassVar[bool] = False
    """Whether its messages must have timestamps."""
    required: ClassVar[tuple[int, ...]] = ()
    """The outputs that a program must read, because their messages would be lost otherwise."""

    output_names: ClassVar[tuple[str, ...]] = ()
    """The names of its outputs, if it has several; an empty name is the default output."""

    @property
    def order_matters(self) -> bool:
        """Whether its results depend on the order in which the messages of a key come."""
        return False

    @property
    def step(self) -> str:
        """The name of the method that adds it to a program."""
        return self.kind

    @abstractmethod
    def start(self, context: Context) -> Process:
        """Return the process that does its work in a task."""

    def combiner(self, context: Context) -> Combiner:
        """Return the combiner that reduces its input in the tasks before the shuffle."""
        raise NotImplementedError(f"{with_article(self.kind)} has no combiner")

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Return the shape of the values at each output port."""
        return (ANY,)

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        """Return whether its output has timestamps, given the same for each input. None: some messages may have one.

        Raise a `GraphError` if it cannot combine such inputs.
        """
        return inputs[0] if inputs else False

    def timestamps(self, inputs: tuple[bool, ...]) -> bool:
        """Return whether users see the times of its messages as datetimes (True) or as ns, given the same for each input.

        Raise a `GraphError` if it cannot combine such inputs.
        """
        return bool(inputs) and inputs[0]

    def check(self, inputs: tuple[Shape, ...]) -> None:  # noqa: B027
        """Raise a `GraphError` for inputs that can never work. The graph calls this while it is built."""

    def reads(self) -> Reads | None:
        """Return the columns that it reads; None if it may read all. Columns that no step reads are not loaded."""
        return None

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        """Like `reads`, for steps that need to know the columns of their input."""
        return self.reads()

    def reads_by_code(self, shape: Shape) -> Reads | None:
        """Like `reads`, if the code of the user's functions proves which columns they read; otherwise None.

        Errors and dead letters still show whole records: if a batch has any, the batch is read again with all columns.
        """
        return None

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        """Return the columns at each output, or None if they cannot be derived from the inputs.

        Raise a `GraphError` for columns that the step cannot process.
        """
        return (None,) * self.ports

    def input(self, name: str) -> Input | None:
        """Return the input of the job's clock that the step provides; None if it generates no epochs."""
        return None

    @property
    def needs_dead_letters(self) -> bool:
        """Whether the program must have a dead-letter sink for it."""
        return False

    @property
    def warns_of(self) -> str:
        """The label of a counter; the run warns whenever it has grown in a commit. Empty: none."""
        return ""

    @property
    def holds_back(self) -> bool:
        """Whether it delays results until the clock of the data has passed their time."""
        return False

    @property
    def waits_for_epochs(self) -> str:
        """A text that says what never happens without epochs; empty if its results need no epochs."""
        return ""

    @property
    def wants_epochs(self) -> str:
        """A text that warns about missing epochs if its results may still be right; empty if there is no problem."""
        return ""

    @property
    def takes_late(self) -> bool:
        """Whether the user configured it to accept late messages."""
        return False

    @property
    def driven_by_time(self) -> bool:
        """Whether epochs or schedules trigger it without data."""
        return False

    @property
    def codec_name(self) -> str:
        """The codec of its state, for the manifest; empty for steps without state."""
        return ""

    @property
    def state_layout(self) -> StateLayout:
        """How the state of a key is stored, so that a changed program is detected."""
        return StateLayout()

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        """The types of the user's values in its state: by side for a join, otherwise under an empty name."""
        return {}

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        """Return the stored state of a key with each value converted, by its name in `kept`; None if no value is left."""
        return convert("", raw)

    @property
    def results_kept(self) -> Mapping[str, str]:
        """The readable results of its state by name, each with the numbers of `state_layout` it is computed from."""
        return {}

    def takes(self, layout: StateLayout) -> bool:
        """Return whether stored state of another layout is valid unchanged. The next commit records the new layout."""
        return False

    def continuing(self, layout: StateLayout) -> Operator | None:
        """Return the step that can continue from stored state of another layout; None if there is none.

        If its own layout still differs from that of the state, its `conversion` converts the state.
        """
        return None

    def conversion(self, layout: StateLayout) -> Conversion | None:
        """Return how to convert stored state of another layout for this step; None if that is impossible."""
        return None


def reads_of_function(read: FieldsRead | None, shape: Shape, passed_on: tuple[int, ...] = ()) -> Reads | None:
    """Return the fields that a function reads, if its code proves that it reads no others."""
    return None if read is None or not shape.hides(read) else Reads(read.names, passed_on)


def each(
    context: Context,
    batch: Batch,
    function: Callable[..., Any],
    read: FieldsRead | None = None,
    with_key: bool = False,
) -> tuple[list[Any], list[int]]:
    """Call the function with each value; return the results and the positions of rejected values.

    `read` has the fields that the function reads, if it does nothing else with a value. With `with_key`, the function is
    called with key and value.
    """
    values, unreadable = values_of(context, batch, read)
    results: list[Any] = []
    rejected: list[int] = []
    if unreadable:
        positions = [position for position in range(len(batch)) if position not in set(unreadable)]
    called: list[Iterator[Any]] = [iter(values)]
    if with_key:
        keys = batch.keys
        called.insert(0, iter([keys[position] for position in positions] if unreadable else keys))
    while True:
        failure: Exception
        try:
            results.extend(map(function, *called))
        except Exception as error:
            failure = error
        else:
            if len(results) + len(rejected) == len(values):
                return results, sorted([*unreadable, *rejected])
            # `map` takes a StopIteration from the function for the end of the values.
            failure = StepError(
                "the function raised StopIteration; use next(iterator, default) if the iterator can be empty"
            )
        position = len(results) + len(rejected)
        if unreadable:
            position = positions[position]
        context.reject(failure, batch, position)
        rejected.append(position)


def values_of(context: Context, batch: Batch, read: FieldsRead | None = None) -> tuple[list[Any], list[int]]:
    """Return the values of a batch, and the positions of records that were rejected because they cannot be read.

    Columns can hold values that Python cannot represent, such as a time after the year 9999, or that do not match the
    declared type.
    """
    try:
        return batch.values_read(read), []
    except Exception:
        values: list[Any] = []
        rejected: list[int] = []
        for position in range(len(batch)):
            try:
                values += batch.take([position]).values_read(read)
            except Exception as error:
                context.reject(error, batch, position)
                rejected.append(position)
        return values, rejected


def readable(context: Context, batch: Batch, read: FieldsRead | None = None) -> Batch:
    """Reject the records that cannot be read, and return the batch of the others with their values."""
    _, rejected = values_of(context, batch, read)
    return without(batch, rejected)


def columns_of(batch: Batch, *, fieldless: bool = False) -> pa.RecordBatch:
    """Return the values as columns. Raise a `StepError` if they do not fit into columns, or have no fields.

    `fieldless` accepts records without fields, for callers that add columns of their own.
    """
    try:
        columns = batch.columns
    except Exception as error:
        if batch.shape.schema() is not None:
            raise StepError(
                f"the values do not match their declared type, {batch.shape.describe()}: {summary(error)}. Convert "
                "them in the previous step, or declare their real type"
            ) from error
        raise StepError(
            f"the values do not fit into columns of one type: {summary(error)}. Declare the type that the previous "
            "step returns "
            "(returns=…), or convert the values"
        ) from error
    if columns.num_rows != len(batch) and not fieldless:
        raise StepError("records without fields have no columns. Remove them with filter, or give them a field")
    return columns


def without(batch: Batch, rejected: list[int]) -> Batch:
    """Return the batch without the rejected positions, or the batch itself if there are none."""
    if not rejected:
        return batch
    positions = set(rejected)
    return batch.take([position for position in range(len(batch)) if position not in positions])
