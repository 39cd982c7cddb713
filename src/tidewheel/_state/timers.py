"""Timers in time order, so that the cost of finding due timers depends only on their number.

A timer is an entry of the auxiliary table `step/timers`; its key begins with the clock and the time, big-endian, so
that store order is time order. Like all state, it is committed state overlaid by this batch's changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError

if TYPE_CHECKING:
    from tidewheel._state.state_file import Items
    from tidewheel._state.task_state import TaskState

Ints = npt.NDArray[np.int64]

Clock = Literal["event", "wall"]
"""The clock of a timer: the epochs of the stream, or the pinned time of the batches."""

SUFFIX = "timers"
"""The end of the table's name, after the step's."""

_CLOCKS: dict[Clock, str] = {"event": "e", "wall": "w"}
_NAMES: dict[str, Clock] = {letter: clock for clock, letter in _CLOCKS.items()}
_SIGN = 2**63
NEVER = _SIGN - 1
"""The time that stands for no timer."""
THERE = b"\x01"
"""The value of a set timer in the table."""


class Timer(msgspec.Struct, frozen=True):
    """A time at which a key wants to be called. Key, time, name and clock together identify it."""

    key: Any
    time: Any
    """The time in ns. A logic whose messages have datetimes gets a datetime."""
    name: str = ""
    clock: Clock = "event"


_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Literal["e", "w"], bytes, bytes, str]).decode


def is_timers(table: str) -> bool:
    """Return whether a table has timers, whose keys are not message keys."""
    return "/" in table and table.endswith(SUFFIX)


def encode(timer: Timer) -> bytes:
    """Return the timer's key in the store.

    It is the stored form of a tuple of clock, time, stored key and name, so that tools can read it like any other key;
    the part before the time has a fixed length, so keys are in time order.

    >>> decode(encode(Timer("ada", 3, "end"))) == Timer("ada", 3, "end")
    True
    """
    return _encoded(timer, to_stored(timer.key))


def _encoded(timer: Timer, stored: bytes) -> bytes:
    time = (timer.time + _SIGN).to_bytes(8, "big")
    return b"m" + _pack((_CLOCKS[timer.clock], time, stored, timer.name))


def decode(entry: bytes) -> Timer:
    """Return the timer of an `encode` result. Raise `CorruptError` for other bytes."""
    try:
        clock, time, stored, name = _decode(entry[1:])
    except UNDECODABLE as error:
        raise CorruptError(
            f"the stored timer {entry!r} does not decode ({error}); another program has written it"
        ) from None
    return Timer(from_stored(stored), int.from_bytes(time, "big") - _SIGN, name, _NAMES[clock])


def stored_key(entry: bytes) -> bytes:
    """Return the stored form of the timer's message key, which determines its shard."""
    stored: bytes = msgspec.msgpack.decode(entry[1:])[2]
    return stored


def _prefix(clock: Clock, time: int) -> bytes:
    return encode(Timer(0, time, "", clock))[:_PREFIX]


def _range(clock: Clock, until: int) -> tuple[bytes, bytes]:
    """Return the start of a clock's entries, and the end of its entries up to a time."""
    last = _prefix(clock, until)
    # Every entry with the last time is longer than the prefix, so the end is the next prefix.
    return _prefix(clock, -_SIGN), (int.from_bytes(last, "big") + 1).to_bytes(len(last), "big")


_PREFIX = 6 + 8
"""The letter, the marks of tuple, clock and bytes, and the time."""


_EVENT = _prefix("event", 0)[:-8]


def _tail(stored: bytes, name: bytes) -> bytes:
    """Return the bytes after the time of a timer, given its packed name."""
    return msgspec.msgpack.encode(stored) + name


class TimerTable:
    """One step's timers of every key, for one task and batch."""

    def __init__(self, task: TaskState, table: str, awake: frozenset[int] | None) -> None:
        """Create a table; called by `TaskState.timers`. `awake` has the shards whose committed timers may be due; None: any."""
        self._task, self._table, self._awake = task, table, awake
        self._changed: dict[int, dict[bytes, bool]] = {}
        self._looked: set[int] = set()

    def put(self, timer: Timer) -> None:
        """Set a timer; setting it again has no effect."""
        self._change(timer, True)

    def cancel(self, timer: Timer) -> None:
        """Remove a timer, if it is set."""
        self._change(timer, False)

    def _change(self, timer: Timer, there: bool) -> None:
        stored = to_stored(timer.key)
        shard = shard_of_stored(stored, self._task.n_shards)
        self._changed.setdefault(shard, {})[_encoded(timer, stored)] = there

    def move(self, stored: Sequence[bytes], shards: Mapping[int, slice], was: Ints, due: Ints, name: str = "") -> None:
        """Change the timers of many keys to other times; `NEVER` stands for no timer. All timers have the same name.

        The keys are given in stored form, by shard. This is much cheaper than `cancel` and `put` for each.
        """
        moved, packed = was != due, _pack(name)
        before, after = was.tolist(), due.tolist()
        for shard, part in shards.items():
            positions = (np.flatnonzero(moved[part]) + part.start).tolist()
            changed = self._changed.setdefault(shard, {}) if positions else {}
            for at in positions:
                tail = _tail(stored[at], packed)
                if before[at] != NEVER:
                    changed[_EVENT + (before[at] + _SIGN).to_bytes(8, "big") + tail] = False
                if after[at] != NEVER:
                    changed[_EVENT + (after[at] + _SIGN).to_bytes(8, "big") + tail] = True

    def take_due(self, shard: int, until: int) -> dict[bytes, tuple[int, set[str]]]:
        """Cancel the event timers of a shard up to a time; return their stored keys, in order.

        Each key has the first of its times and the names of its timers.
        """
        due: dict[bytes, tuple[int, set[str]]] = {}
        entries = self._entries(shard, "event", until)
        if entries:
            self._changed.setdefault(shard, {}).update(dict.fromkeys(entries, False))
        for entry in entries:
            _, time, stored, name = msgspec.msgpack.decode(entry[1:])
            due.setdefault(stored, (int.from_bytes(time, "big") - _SIGN, set()))[1].add(name)
        return dict(sorted(due.items()))

    def candidates(self, shards: Callable[[], Iterable[int]]) -> list[int]:
        """Return the shards in which a timer may be due: all that `shards` returns, if nothing else is known."""
        return list(shards()) if self._awake is None else sorted(self._awake | self._changed.keys())

    def due(self, shard: int, clock: Clock, until: int) -> list[Timer]:
        """Return the timers of a shard up to a time, by time and then by key."""
        return [decode(entry) for entry in self._entries(shard, clock, until)]

    def _entries(self, shard: int, clock: Clock, until: int) -> list[bytes]:
        start, stop = _range(clock, until)
        changed = self._changed.get(shard, {})
        entries = [entry for entry, there in changed.items() if there and start <= entry < stop]
        if self._awake is None or shard in self._awake:
            self._looked.add(shard)
            committed = self._task.reader(shard).items(self._table, start, stop)
            entries += [entry for entry, _ in committed if entry not in changed]
        return sorted(entries)

    def next_due(self) -> dict[int, tuple[int, int]]:
        """Return, for each checked or changed shard, the time of its next timer by event and by wall clock."""
        shards = sorted(self._looked | self._changed.keys())
        return {shard: (self._next(shard, "event"), self._next(shard, "wall")) for shard in shards}

    def _next(self, shard: int, clock: Clock) -> int:
        start, stop = _range(clock, NEVER)
        changed = self._changed.get(shard, {})
        committed = self._task.reader(shard).items(self._table, start, stop)
        first = next((entry for entry, _ in committed if changed.get(entry, True)), stop)
        entry = min((entry for entry, there in changed.items() if there and start <= entry < first), default=first)
        return NEVER if entry == stop else int.from_bytes(entry[_PREFIX - 8 : _PREFIX], "big") - _SIGN

    def touched(self) -> set[int]:
        """Return the shards with changes."""
        return set(self._changed)

    def changes(self, shard: int) -> Items:
        """Return the changes of this batch in the shard, in order; a timer that was set and cancelled again is no change."""
        changed = sorted(self._changed.get(shard, {}).items())
        committed = self._task.reader(shard).get_many(self._table, [entry for entry, _ in changed])
        return [
            (entry, THERE if there else None)
            for (entry, there), stored in zip(changed, committed, strict=True)
            if there == (stored is None)
        ]

    def close(self) -> None:
        """Do nothing: no resources are open."""
