"""Live configuration: a cell that a program reads, with one version for all records of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_origin
from uuid import UUID

import msgspec

from tidewheel._cells.declared import type_name
from tidewheel._cells.dict_keys import check_keys
from tidewheel.errors import GraphError

T = TypeVar("T")


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


# If a cell's type and default do not match, a type checker would infer their common type, `object`, or their union.
# These constrained variables exclude both.
TypeOfDefault = TypeVar("TypeOfDefault", bool, int, float, str, bytes, datetime, date, time, timedelta, UUID, Decimal)
Record = TypeVar("Record", bound=frozenset[Any] | tuple[Any, ...] | Enum | msgspec.Struct | _Dataclass)

_IN_A_FUNCTION = (
    "use a function, such as lambda order: order.cents > limit.value, so that each call reads the current value"
)

_pinned: dict[str, Any] = {}
_defaults_hold = False
"""Whether cells that are not pinned have their defaults, as in the test of a step."""
_read_empty: dict[str, JobCell[Any]] = {}
"""The cells that a function of this batch has read while they had no value."""


class JobCell(Generic[T]):
    """A cell of a job, created by `Job.cell`. Its value can change between batches while the job runs.

    Inside a step, `value` is the value that the batch pinned: the same for every record and task of the batch; the
    manifest records its version. Elsewhere `value` raises: read and write the cell with `StoredJob.cell`, or `tidewheel
    cells` in a shell.
    """

    def __init__(self, name: str, declared: Any, default: T) -> None:
        """Create a cell; called by `Job.cell`."""
        _check_type(name, declared, default)
        check_keys(declared)
        self.name, self.declared, self.default = name, declared, _fitted(name, declared, default)

    @property
    def value(self) -> T:
        """The pinned value, or the default until somebody writes the cell."""
        try:
            value: T = _pinned[self.name]
        except KeyError:
            if not _defaults_hold:
                raise RuntimeError(
                    f"the cell {self.name!r} has a value inside the functions of a running job only. What is built once, such as "
                    f"an expression (pc.field(…) > cell.value), cannot follow it: {_IN_A_FUNCTION}. Elsewhere "
                    f"{self._by_others()}"
                ) from None
            value = self.default
        if value is None:
            _read_empty[self.name] = self
        return value

    def _by_others(self) -> str:
        return (
            f"read and write it with StoredJob(JOB, state=…).cell({self.name!r}), or with tidewheel cells get and set"
        )

    def __repr__(self) -> str:
        # Arrow shows this text if a cell is used in an expression.
        return f"<the cell {self.name!r}: {_IN_A_FUNCTION}>"

    def __bool__(self) -> bool:
        raise TypeError(f"the cell {self.name!r} is neither true nor false: {_IN_A_FUNCTION}")

    if not TYPE_CHECKING:
        # Support comparisons such as `n > limit`: Python's own error would not say what to write, and `n == limit`
        # would always be false. They are hidden from type checkers, which then report the expression.

        def _no_value(self, other):
            raise TypeError(f"the cell {self.name!r} is not its value: {_IN_A_FUNCTION}")

        __lt__ = __le__ = __gt__ = __ge__ = _no_value
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_value
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __contains__ = __getitem__ = _no_value

        def __eq__(self, other):
            return self is other or (False if isinstance(other, JobCell) else self._no_value(other))

        __hash__ = object.__hash__

        # These attributes only explain how to change the cell.

        @value.setter
        def value(self, given):
            self._refuse_change()

        def __getattr__(self, attribute):
            if attribute in ("set", "write", "exchange", "update", "get", "read"):
                self._refuse_change()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")

        def _refuse_change(self):
            raise AttributeError(
                f"the functions of the job read the cell {self.name!r} by .value; elsewhere {self._by_others()}"
            )

    def encode(self, value: T) -> bytes:
        """Encode a value for transport to the tasks."""
        return msgspec.msgpack.encode(value)


def _check_type(name: str, declared: Any, default: Any) -> None:
    """Raise if the argument is not a type, for example if it is a default."""
    try:
        msgspec.msgpack.Decoder(declared)
        if declared is not None:
            return
    except (TypeError, NameError) as error:
        if isinstance(declared, type | UnionType) or get_origin(declared) is not None:
            raise GraphError(
                f"cell {name!r}: values of its type {type_name(declared)} cannot be stored: {error}"
            ) from None
    value = default if default is not None else 0.5 if declared is None or callable(declared) else declared
    raise GraphError(
        f"cell {name!r}: its second argument is the type of its values, not {declared!r:.200}. Write "
        f"job.cell({name!r}, {type_name(type(value))}, default={value!r:.200})"
    )


def _fitted(name: str, declared: Any, default: Any) -> Any:
    """Return a default as a reader would see it, or raise."""
    if default is None:
        return None
    try:
        seen = msgspec.msgpack.decode(msgspec.msgpack.encode(default), type=declared)
    except Exception as error:  # A class may validate its values and raise any error.
        raise GraphError(
            f"cell {name!r}: default={default!r:.200} is not of its declared type, {type_name(declared)}: {error}"
        ) from None
    return default if seen == default else seen


def pin(cells: tuple[JobCell[Any], ...], encoded: dict[str, bytes]) -> None:
    """Set the values of the current batch in this process."""
    _pinned.clear()
    _read_empty.clear()
    for cell in cells:
        raw = encoded.get(cell.name)
        _pinned[cell.name] = cell.default if raw is None else msgspec.msgpack.decode(raw, type=cell.declared)


@contextmanager
def unpinned_after() -> Iterator[None]:
    """Allow a batch to pin values during the block; remove them afterwards, because the process also does other work."""
    try:
        yield
    finally:
        _pinned.clear()
        _read_empty.clear()


@contextmanager
def given(values: Mapping[str, Any]) -> Iterator[None]:
    """Set the values that functions see during the block, in tests; other cells have their defaults."""
    global _defaults_hold
    _pinned.clear()
    _read_empty.clear()
    _pinned.update(values)
    _defaults_hold = True
    try:
        yield
    finally:
        _pinned.clear()
        _defaults_hold = False


def empty_cells(error: BaseException) -> str:
    """Return a hint for an error caused by `None`, if a cell without a value was read; otherwise an empty text."""
    each: BaseException | None = error
    while each is not None and not (isinstance(each, TypeError | AttributeError) and "NoneType" in str(each)):
        each = each.__cause__
    if each is None or not _read_empty:
        return ""
    notes = (
        f". If that None is the cell {name!r}, which is not set and has no default: declare one with "
        f"job.cell({name!r}, {type_name(cell.declared)}, default=…), or set it with tidewheel cells set {name} VALUE --job JOB"
        for name, cell in _read_empty.items()
    )
    return "".join(notes)
