"""A cell: one value, agreed on everywhere.

Reading is local: it returns the last committed value that this process has seen, without waiting. Writing goes to the
backend and returns the version of its commit. Readers and writers are different types.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

from tidewheel._cells import record as records
from tidewheel._cells.author import Author
from tidewheel._cells.backends.base import NOTHING, Held
from tidewheel._cells.credentials import Presented, Ticket, Validator
from tidewheel._cells.deadline import Deadline
from tidewheel._cells.declared import ValueCodec, type_name
from tidewheel._cells.errors import (
    CellError,
    Closed,
    Encoding,
    Offline,
    TicketRefused,
    TooLarge,
    Unreadable,
    WrongType,
)
from tidewheel._cells.observed import Observed
from tidewheel._cells.record import CellRecord
from tidewheel._cells.when import When
from tidewheel._core.closing import Closing
from tidewheel._time.duration import Duration
from tidewheel.errors import CorruptError, TidewheelError

if TYPE_CHECKING:
    from tidewheel._cells.connection import Connection

T = TypeVar("T")

Version: TypeAlias = int
"""A number that grows with every committed command on a cell, not always by one; 0 before the first."""


class Snapshot(NamedTuple, Generic[T]):
    """A value and its version, read together. `value` is None when the cell is empty."""

    version: Version
    value: T | None


class Exchange(NamedTuple, Generic[T]):
    """The result of a compare-and-exchange.

    If applied, `version` is the version of its commit and `seen` the replaced value. If not applied, `seen` is the
    current value, since `version`.
    """

    applied: bool
    version: Version
    seen: T | None


class Change(NamedTuple, Generic[T]):
    """The last change of a cell: value, version and author. `author` is None if it was not recorded."""

    version: Version
    value: T | None
    author: Author | None


class _Hidden:
    """A placeholder for a snapshot that must not be shown, with the reason."""

    def __init__(self, error: TidewheelError) -> None:
        self.error = error

    @property
    def version(self) -> int:
        raise self.error

    @property
    def value(self) -> Any:
        raise self.error


class Cell(Observed, Closing, Generic[T]):
    """The common part of readers and writers. Open one with `Connection.reader` or `Connection.writer`.

    All readers of this object share the values: do not modify a value in place.
    """

    __slots__ = (
        "_author",
        "_codec",
        "_connection",
        "_held",
        "_snapshot",
        "_validators",
        "ignored",
        "name",
        "namespace",
        "type_name",
    )

    def __init__(
        self, connection: Connection, namespace: str, name: str, declared: Any, declared_as: str | None
    ) -> None:
        super().__init__(f"cell {namespace}/{name} at {connection.url}", connection.is_online)
        self.namespace = namespace
        self.name = name
        self.type_name: str = type_name(declared) if declared_as is None else declared_as
        """The name of the declared type; empty for a cell that accepts any type."""
        self.ignored: tuple[Version, str] | None = None
        """The last version that was not shown because its writer had no valid ticket, with the reason."""
        self._connection = connection
        self._codec: ValueCodec[T] = declared if isinstance(declared, ValueCodec) else ValueCodec(declared)
        self._held = NOTHING
        self._snapshot: Snapshot[T] | _Hidden = Snapshot(0, None)
        self._author: Author | None = None
        """The author of `_snapshot`."""
        self._validators: tuple[Validator, ...] = ()

    @property
    def path(self) -> str:
        """The cell's path in its backend."""
        return f"{self.namespace}/{self.name}"

    def read(self) -> T | None:
        """Return the last committed value seen by this process, None if the cell is empty. Local and immediate."""
        return self._snapshot.value

    get = read

    def is_empty(self) -> bool:
        """Whether the cell holds no value."""
        return self._snapshot.value is None

    is_none = is_empty

    def is_some(self) -> bool:
        """Whether the cell holds a value."""
        return self._snapshot.value is not None

    def version(self) -> Version:
        """Return the version of the value that `read` returns. For a consistent pair, use `snapshot`."""
        return self._snapshot.version

    def snapshot(self) -> Snapshot[T]:
        """Return a consistent pair of value and version."""
        snapshot = self._snapshot
        return Snapshot(snapshot.version, snapshot.value)

    def last_change(self) -> Change[T]:
        """Return a consistent value, version and author.

        The author is what the writer claims, for information. Require tickets if you need proof.
        """
        with self._condition:
            snapshot, author = self._snapshot, self._author
        return Change(snapshot.version, snapshot.value, author)

    def refresh(self, timeout: Duration | None = None) -> Snapshot[T]:
        """Read the cell from the backend: the result is at least as new as every write that returned before this call.

        A value that was hidden because of its ticket, or that could not be read, is checked again.
        """
        held = self._connection._backend.load(self.path, self._deadline(timeout), self._held.version)
        self._install(held, again=True)
        return self.snapshot()

    @property
    def error(self) -> TidewheelError | None:
        """The error that every read raises because the value cannot be read; None if it can."""
        snapshot = self._snapshot
        return snapshot.error if isinstance(snapshot, _Hidden) else None

    @property
    def when(self) -> When[T]:
        """Waits for this cell."""
        return When(self)

    def watch(self, since: Version | None = None) -> Iterator[Snapshot[T]]:
        """Yield the current value (if newer than `since`), then every change. Changes that were soon replaced may be skipped.

        The iterator ends when the cell is closed.
        """
        seen = -1 if since is None else since
        with contextlib.suppress(Closed):
            while True:
                snapshot = self.when.reaches(seen + 1)
                seen = snapshot.version
                yield snapshot

    def require_ticket(self, validator: Validator) -> Self:
        """Show only values whose writer had a ticket that this validator, and all earlier ones, accept.

        A ticket is checked when its value arrives here; a shown value stays until another one is shown. For new
        readers, and for `compare_exchange`, a cell whose newest value has no valid ticket is empty.
        """
        with self._condition:
            self._validators = (*self._validators, validator)
            self._snapshot, self._author = Snapshot(0, None), None
            held, self._held = self._held, NOTHING
        self._install(held)
        return self

    def close(self) -> None:
        """Stop following. Later reads and waits raise `Closed`."""
        self._connection._forget(self)
        with self._condition:
            self._snapshot = _Hidden(Closed(f"{self.where} was closed"))
            self._mark_closed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace}/{self.name}: {self.type_name})"

    def _install(self, held: Held, again: bool = False) -> None:
        """Store the backend's record if it is newer than the known one.

        With `again`, also accept a known version that is not shown. Never raises: an error of a value, its class or a
        validator affects only this cell, and is reported to its readers.
        """
        with self._condition:
            newer = held.version > self._held.version
            hidden = held.version == self._held.version and not self._shows(held.version)
            if self._closed or not (newer or (again and hidden)):
                return
            self._held = held
            try:
                record = self._record_of(held)
                self._snapshot = Snapshot(held.version, self._judged(held.version, record))
                self._author = None if record is None else record.author
            except TicketRefused as refused:
                self.ignored = (held.version, str(refused))
                return
            except Exception as error:
                self._hide(error)
                return
            if self.ignored is not None and self.ignored[0] == held.version:
                self.ignored = None
            self._changes += 1
            self._notify()

    def _shows(self, version: Version) -> bool:
        return isinstance(self._snapshot, Snapshot) and self._snapshot.version == version

    def _hide(self, error: Exception) -> None:
        """Make every read raise this error until a readable value arrives."""
        if not isinstance(error, TidewheelError):
            text = f"{self.where} cannot be read: {type(error).__name__} {error}".rstrip()
            error, cause = Unreadable(f"{text}; it was raised by the value's class, a validator or the backend"), error
            error.__cause__ = cause
        with self._condition:
            if not self._closed:
                self._snapshot = _Hidden(error)
                self._changes += 1
                self._notify()

    def _judged(self, version: Version, record: CellRecord | None) -> T | None:
        """Return the value of a record; raise `TicketRefused` or `Encoding`."""
        if record is None:
            if version and self._validators:
                raise TicketRefused("it was deleted, and that takes no ticket")
            return None
        return None if record.value is None else self._codec.decode(record.value, self.where, self.type_name)

    def _record_of(self, held: Held) -> CellRecord | None:
        """Return the current record; raise `TicketRefused`, `WrongType` or `CorruptError`.

        The ticket is checked first: a writer without one must not disturb readers that require tickets, whatever it
        writes.
        """
        if held.record is None:
            return None
        try:
            record = records.decode(held.record, self.where)
        except CorruptError as error:
            if self._validators:
                raise TicketRefused(f"it has no ticket that can be read: {error}") from None
            raise
        if self._validators:
            signed = records.statement(self.path, record.type_name, record.token, record.value)
            presented = Presented(record.ticket, record.proof, signed)
            for validate in self._validators:
                validate(presented)
        if not self.type_name:
            self.type_name = record.type_name
        if record.type_name not in (self.type_name, records.FORGOTTEN):
            raise WrongType(
                f"{self.where} is declared as {record.type_name}, here as {self.type_name}; "
                "declare it the same everywhere, or take another name",
                record.type_name,
            )
        return record

    def _seen(self, held: Held) -> T | None:
        """Return the value of a record for an exchange: a value without a valid ticket counts as empty."""
        try:
            return self._judged(held.version, self._record_of(held))
        except TicketRefused:
            return None

    def _deadline(self, timeout: Duration | None) -> Deadline:
        if self._closed:
            raise Closed(f"{self.where} was closed")
        return self._connection.deadline(timeout)


class CellReader(Cell[T]):
    """A reader of a cell, which cannot change it."""

    __slots__ = ()


class CellWriter(Cell[T]):
    """A reader and writer of a cell. Any number of writers on any number of machines can change it at the same time.

    Every command takes a timeout such as "5 s"; None uses the connection's. If the backend cannot be reached in time,
    the command raises `Offline` with the value in `value`; `maybe` says whether the command may have been committed.
    """

    __slots__ = ("_ticket",)

    def __init__(
        self, connection: Connection, namespace: str, name: str, declared: Any, declared_as: str | None
    ) -> None:
        super().__init__(connection, namespace, name, declared, declared_as)
        self._ticket: Ticket | None = None

    def present(self, ticket: Ticket | str | None) -> Self:
        """Send this ticket with every command from now on."""
        self._ticket = Ticket(ticket) if isinstance(ticket, str) else ticket
        return self

    def write(self, value: T, *, timeout: Duration | None = None) -> Version:
        """Replace the value; return the version of that commit."""
        data = self._codec.encode(value, self.where, self.type_name)
        return self._command(None, data, value, self._deadline(timeout)).version

    set = write

    def clear(self, *, timeout: Duration | None = None) -> Version:
        """Empty the cell, even if it is already empty; return the version of that commit."""
        return self._command(None, None, None, self._deadline(timeout)).version

    def forget(self, *, timeout: Duration | None = None) -> Version:
        """Empty the cell and remove its declared type, so that the next write can declare another; return the version."""
        return self._command(None, None, None, self._deadline(timeout), forgets=True).version

    def compare_exchange(self, current: T | None, new: T | None, *, timeout: Duration | None = None) -> Exchange[T]:
        """Write `new` if the cell holds `current`; None means empty."""
        before = self._encoded(current)
        deadline = self._deadline(timeout)
        return self._command(lambda held: self._codec.same(self._seen(held), before), self._encoded(new), new, deadline)

    def compare_exchange_at(self, version: Version, new: T | None, *, timeout: Duration | None = None) -> Exchange[T]:
        """Write `new` if the cell is still at `version`; 0 means never written."""
        return self._exchange_at(version, new, self._deadline(timeout))

    def update(self, change: Callable[[T | None], T | None], *, timeout: Duration | None = None) -> Snapshot[T]:
        """Replace the value by the result of `change`, which is called again if another writer came first."""
        deadline = self._deadline(timeout)
        seen: Snapshot[T] = Snapshot(self._held.version, self._seen(self._held))
        while True:
            new = change(seen.value)
            done = self._exchange_at(seen.version, new, deadline)
            if done.applied:
                return Snapshot(done.version, new)
            seen = Snapshot(done.version, done.seen)

    def _exchange_at(self, version: Version, new: T | None, deadline: Deadline) -> Exchange[T]:
        return self._command(lambda held: held.version == version, self._encoded(new), new, deadline)

    def _encoded(self, value: T | None) -> bytes | None:
        return None if value is None else self._codec.encode(value, self.where, self.type_name)

    def _command(
        self,
        applies: Callable[[Held], bool] | None,
        data: bytes | None,
        given: T | None,
        deadline: Deadline,
        forgets: bool = False,
    ) -> Exchange[T]:
        """Exchange until it applies, or until a freshly read value shows that the condition is not met.

        Without a condition it always applies, also over a value that cannot be read.
        """
        try:
            return self._exchange(applies, data, deadline, forgets)
        except CellError as error:
            error.value = given
            raise

    def _exchange(
        self, applies: Callable[[Held], bool] | None, data: bytes | None, deadline: Deadline, forgets: bool
    ) -> Exchange[T]:
        backend = self._connection._backend
        held, fresh, lost = self._held, False, 0
        while True:
            with contextlib.suppress(TicketRefused):  # A value without a valid ticket may be overwritten.
                self._record_of(held)
            seen = None if applies is None else self._seen(held)
            if applies is None or applies(held):
                swap = backend.swap(self.path, held, self._record(data, backend.limit, forgets), deadline)
                self._install(swap.held)
                if swap.applied:
                    self._connection.changed(self.path, swap.held)
                    return Exchange(True, swap.held.version, seen)
                held, fresh, lost = swap.held, True, lost + 1
                self._pause(lost, deadline)
            elif fresh:
                return Exchange(False, held.version, seen)
            else:
                held, fresh = backend.load(self.path, deadline, held.version), True
                self._install(held)

    def _record(self, data: bytes | None, limit: int, forgets: bool) -> bytes:
        token, proof = records.new_token(), None
        declared = records.FORGOTTEN if forgets else self.type_name
        if self._ticket is not None:
            proof = self._ticket.prove(records.statement(self.path, declared, token, data))
        if not declared and not forgets:
            raise Encoding(f"{self.where} has no type, because it was never written or was cleared; give its type")
        text = None if self._ticket is None else self._ticket.text
        author = self._connection.signature.now()
        record = records.encode(CellRecord(records.FORMAT, declared, token, data, text, proof, author))
        if len(record) > limit:
            raise TooLarge(
                f"the value for {self.where} takes {len(record)} bytes and the backend takes {limit}; "
                "keep large things in a file and its name in the cell"
            )
        return record

    def _pause(self, lost: int, deadline: Deadline) -> None:
        """After several lost exchanges in a row, wait for other writers, longer each time."""
        if deadline.passed:
            raise Offline(f"other writers of {self.where} came first {lost} times; nothing was written")
        if lost > 2:
            time.sleep(min(deadline.left(), random.uniform(0, 0.001 * 2 ** min(lost, 6))))
