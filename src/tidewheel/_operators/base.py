"""What an operator is: a description in the graph, and a process while a task runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from tidewheel._core.fields_read import FieldsRead
from tidewheel._core.text import with_article
from tidewheel._core.user_code import summary
from tidewheel._values import ANY, Batch, Shape
from tidewheel.errors import OperatorError

if TYPE_CHECKING:
    from tidewheel._operators.keyed.combiner import Combiner
    from tidewheel._operators.keyed.state_spec import StateSpec
    from tidewheel._state.codec import StateCodec
    from tidewheel._state.task_state import KeyedState, RawTable
    from tidewheel._state.timers import TimerTable
    from tidewheel._time.frontier import Input


class Context(Protocol):
    """What a task gives an operator for the length of one batch."""

    operator: str
    shapes: tuple[Shape, ...]
    """What the values at each output look like, as the graph has it: annotations can be read in the driver only."""
    now: int
    """The pinned time of the batch, in ns since the Unix epoch: the same in every task of the batch."""
    timestamps: bool
    """Whether users see times as datetimes; else as ns."""
    last_epoch: int | None
    """The epoch that went out before this batch."""
    epoch: int | None
    """The epoch that goes out after this batch's data, if there is a new one."""

    def emit(self, batch: Batch, port: int = 0) -> None:
        """Send messages to whatever follows the operator."""

    def write(self, columns: pa.RecordBatch) -> None:
        """Write rows to the operator's sink."""

    def reject(self, error: Exception, batch: Batch, position: int) -> None:
        """Put a record aside that the operator cannot take: the one place that decides what an error at a record means.

        A transient error raises `Retry`: the batch runs again. Any other error sends the record to the dead-letter sink,
        or, where there is none, raises an `OperatorError` that names operator, key and record.
        """

    def check_transient(self, error: Exception) -> None:
        """Raise `Retry` if an error is transient, for an error that belongs to no single record."""

    def keeps_rejected(self) -> bool:
        """Whether a refused record goes to a dead-letter sink and the batch goes on."""

    def state(self, codec: StateCodec, default: Callable[[], Any], table: str = "") -> KeyedState:
        """Return the operator's keyed state; `table` names a second one beside it."""

    def raw_table(self) -> RawTable:
        """Return the operator's state as stored keys and bytes, for operators that work on arrays."""

    def timers(self, table: str = "timers") -> TimerTable:
        """Return the operator's timers; `table`, which ends with "timers", names others beside them."""

    def clock(self) -> int | None:
        """Return the newest epoch that is known: this batch's, or the one before."""

    def saw(self, name: str, epoch: int | None) -> None:
        """Report that an input of the job's clock gave data, and the epoch that follows from it, if any."""

    def keyed(self, kinds: Mapping[str, set[str]]) -> None:
        """Report the types of the operator's keys, as `kinds_of` returns them; an `OperatorError` if types are mixed."""

    def count(self, label: str, number: int) -> None:
        """Add to a counter of the operator, `operator/label` in the manifest."""

    def shards(self) -> Iterable[int]:
        """Return the shards of this task that have state or got data."""

    def shards_awake(self, timers: TimerTable) -> Iterable[int]:
        """Return the shards of this task in which one of the timers may be due."""

    def all_shards(self) -> Iterable[int]:
        """Return all shards of this task, with or without state and data."""


@dataclass(frozen=True)
class Reads:
    """Which columns of its input an operator reads, and at which of its outputs the input's values go on as they are."""

    columns: Collection[str]
    passed_on: tuple[int, ...] = ()
    made: Collection[str] = ()
    """Columns of what goes on that the operator made itself: nobody need give it these."""


@dataclass(frozen=True)
class Conversion:
    """How the stored state of a key becomes that of today's operator."""

    convert: Callable[[bytes], bytes] | None
    """None: it stays as it is."""
    said: str
    """What becomes of the state, for whoever starts the job."""
    emptied: tuple[str, ...] = ()
    """The tables beside the operator's own that begin empty."""


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
    combines: ClassVar[bool] = False
    """Whether it has a combiner, which shrinks its input before the shuffle."""
    shuffles: ClassVar[bool] = False
    """Whether what follows runs in the tasks of the keys, behind a shuffle."""
    needs_time: ClassVar[bool] = False
    """Whether its messages must have timestamps."""
    required: ClassVar[tuple[int, ...]] = ()
    """The outputs that must lead somewhere: what goes there would be lost otherwise."""

    output_names: ClassVar[tuple[str, ...]] = ()
    """What people call its outputs, where it has several; an empty name is the one that is meant if nothing is said."""

    @property
    def step(self) -> str:
        """What the program calls it."""
        return self.kind

    @abstractmethod
    def start(self, context: Context) -> Process:
        """Return the process that does the work in a task."""

    def combiner(self, context: Context) -> Combiner:
        """Return what shrinks its input in the tasks before the shuffle."""
        raise NotImplementedError(f"{with_article(self.kind)} has no combiner")

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Return the shape of the values at each output port."""
        return (ANY,)

    def timed(self, inputs: tuple[bool | None, ...]) -> bool | None:
        """Tell whether its output has timestamps. `inputs` tells the same of each input. None: some messages may have one.

        Raise a `GraphError` if it cannot combine such inputs.
        """
        return inputs[0] if inputs else False

    def timestamps(self, inputs: tuple[bool, ...]) -> bool:
        """Tell whether its messages' times came as timestamps, so that users see datetimes; else they see ns.

        `inputs` tells the same of each input. Raise a `GraphError` if it cannot combine such inputs.
        """
        return bool(inputs) and inputs[0]

    def check(self, inputs: tuple[Shape, ...]) -> None:  # noqa: B027
        """Refuse, with a `GraphError`, inputs that can never work; called when the graph is built."""

    def reads(self) -> Reads | None:
        """Return the columns that it reads. None: it may read all. Columns that no operator reads are not carried."""
        return None

    def reads_of(self, columns: pa.Schema | None) -> Reads | None:
        """As `reads`, for an operator that can tell only where the columns of its input are known."""
        return self.reads()

    def reads_by_code(self, shape: Shape) -> Reads | None:
        """As `reads`, for values of a shape, as far as the code of the user's functions proves it. None: it does not.

        Errors and dead letters show whole records all the same: a batch that has any is read again, whole.
        """
        return None

    def schemas(self, inputs: tuple[pa.Schema | None, ...]) -> tuple[pa.Schema | None, ...]:
        """Return the columns at each output where they follow from those of the inputs, which may be known or None.

        Raise a `GraphError` for columns that the operator cannot work with.
        """
        return (None,) * self.ports

    def input(self, name: str) -> Input | None:
        """Return what the operator adds to the job's clock. None: it generates no epochs."""
        return None

    @property
    def holds_back(self) -> bool:
        """Whether results wait in it for the clock of the data, beside what it keeps."""
        return False

    @property
    def waits_for_epochs(self) -> str:
        """What does not happen, in words, where no epoch ever comes; empty: its results need none."""
        return ""

    @property
    def wants_epochs(self) -> str:
        """What is amiss, in words, where no epoch ever comes, though its results may be right; empty: nothing."""
        return ""

    @property
    def takes_late(self) -> bool:
        """Whether the user has asked it to take in messages that are behind the clock."""
        return False

    @property
    def driven_by_time(self) -> bool:
        """Whether epochs or schedules make it act without data."""
        return False

    @property
    def codec_name(self) -> str:
        """The codec of its state, for the manifest; empty for operators without state."""
        return ""

    @property
    def state_layout(self) -> str:
        """A text that changes when stored state changes its meaning, so that a changed program is noticed; may be empty."""
        return ""

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        """The values that it keeps for users and how the program describes them; by side for a join, else under an empty name."""
        return {}

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        """Return a key's stored state with each value in it converted, by the value's name in `kept`; None: it has none left."""
        return convert("", raw)

    @property
    def results_kept(self) -> Mapping[str, str]:
        """What its state is to people, by name, each with the numbers of `state_layout` that it is made of; empty: as stored."""
        return {}

    def takes(self, layout: str) -> bool:
        """Tell whether stored state of another layout is the operator's as it is: from the next commit on it has this layout."""
        return False

    def continuing(self, layout: str) -> Operator | None:
        """Return the operator that goes on with stored state of another layout; None if there is none.

        Its own layout may still differ from that of the state: then its `conversion` makes one of the other.
        """
        return None

    def conversion(self, layout: str) -> Conversion | None:
        """Return how stored state of another layout becomes that of this operator; None if it cannot."""
        return None


def reads_of_function(read: FieldsRead | None, shape: Shape, passed_on: tuple[int, ...] = ()) -> Reads | None:
    """Return what a function reads of values of a shape, where its code proves that it reads these fields and no more."""
    return None if read is None or not shape.hides(read) else Reads(read.names, passed_on)


def each(
    context: Context, batch: Batch, function: Callable[[Any], Any], read: FieldsRead | None = None
) -> tuple[list[Any], list[int]]:
    """Call the function with each value; return what it returned, and the positions of the values that were rejected.

    `read` are the fields that the function reads of a value, where it does nothing else with it.
    """
    values, unreadable = values_of(context, batch, read)
    results: list[Any] = []
    rejected: list[int] = []
    if unreadable:
        positions = [position for position in range(len(batch)) if position not in set(unreadable)]
    rest = iter(values)
    while True:
        failure: Exception
        try:
            results.extend(map(function, rest))
        except Exception as error:
            failure = error
        else:
            if len(results) + len(rejected) == len(values):
                return results, sorted([*unreadable, *rejected])
            # To `map`, a StopIteration from the function means that there are no more values.
            failure = OperatorError(
                "the function raised StopIteration; use next(iterator, default) where it may be empty"
            )
        position = len(results) + len(rejected)
        if unreadable:
            position = positions[position]
        context.reject(failure, batch, position)
        rejected.append(position)


def values_of(context: Context, batch: Batch, read: FieldsRead | None = None) -> tuple[list[Any], list[int]]:
    """Return the values of a batch, and the positions of records that were rejected because they cannot be read.

    Columns can hold what Python does not have, such as a time after the year 9999, or what does not fit the declared type.
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
    """Return the batch without the records that cannot be read, which are rejected; the others have their values."""
    _, rejected = values_of(context, batch, read)
    return without(batch, rejected)


def columns_of(batch: Batch, *, fieldless: bool = False) -> pa.RecordBatch:
    """Return the values as columns; an `OperatorError` where they do not fit into any, or have no fields.

    `fieldless`: records without fields are fine, since the caller has columns of its own.
    """
    try:
        columns = batch.columns
    except Exception as error:
        if batch.shape.schema() is not None:
            raise OperatorError(
                f"the values do not fit the type that is declared for them, {batch.shape.describe()}: {summary(error)}. Convert "
                "them in the step before it, or declare what they are"
            ) from error
        raise OperatorError(
            f"the values do not fit into columns of one type: {summary(error)}. Declare what the operator before it returns "
            "(returns=…), or convert the values"
        ) from error
    if columns.num_rows != len(batch) and not fieldless:
        raise OperatorError("records without fields have no column. Leave them out with filter, or give them a field")
    return columns


def without(batch: Batch, rejected: list[int]) -> Batch:
    """Return the batch without the rejected positions; the usual case, none, costs nothing."""
    if not rejected:
        return batch
    positions = set(rejected)
    return batch.take([position for position in range(len(batch)) if position not in positions])
