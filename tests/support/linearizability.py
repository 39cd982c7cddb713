"""Check whether a recorded history of reads, writes and exchanges on one cell is linearizable.

It is if each operation can be given a moment between its call and its return, so that the operations, one after the other,
return what they reported. An operation that timed out may have happened at any moment after its call, or never.

The search is Wing and Gong's with Lowe's memory of tried states: exponential in the worst case, fast for histories in which
few operations overlap.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

READ, WRITE, EXCHANGE = "read", "write", "exchange"


@dataclass(frozen=True)
class Operation:
    """One call. `result` is the value read, or whether the exchange applied; for a write it is not used."""

    kind: str
    called: float
    returned: float = math.inf
    new: Any = None
    expected: Any = None
    result: Any = None

    @property
    def maybe(self) -> bool:
        return self.returned == math.inf

    def step(self, value: Any) -> tuple[bool, Any]:
        """Return whether the operation could have reported what it did on this value, and the value after it."""
        if self.kind == READ:
            return self.maybe or self.result == value, value
        if self.kind == WRITE:
            return True, self.new
        applies = value == self.expected
        return self.maybe or self.result == applies, self.new if applies else value


def is_linearizable(history: list[Operation], initial: Any = None) -> bool:
    """Search for an order that explains the history."""
    history = sorted(history, key=lambda operation: operation.called)
    everything = (1 << len(history)) - 1
    certain = sum(1 << number for number, operation in enumerate(history) if not operation.maybe)
    tried = set()
    pending = [(0, initial)]
    while pending:
        done, value = pending.pop()
        if done & certain == certain:
            return True
        if (done, value) in tried:
            continue
        tried.add((done, value))
        left = everything & ~done
        horizon = min(history[number].returned for number in _bits(left))
        for number in _bits(left):
            if history[number].called > horizon:
                break  # It began after another, not yet placed, had returned: that one comes first.
            possible, after = history[number].step(value)
            if possible:
                pending.append((done | 1 << number, after))
    return False


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


class Recorder:
    """Collects a history from several threads."""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self._lock = threading.Lock()

    def record(
        self,
        call: Callable[[], Any],
        kind: str,
        new: Any = None,
        expected: Any = None,
        did_not_happen: Callable[[Exception], bool] = lambda error: False,
        errors: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> Any:
        """Make a call and note it; one that failed with such an error is a maybe, unless it certainly did nothing."""
        called = time.monotonic()
        returned, result = math.inf, None
        try:
            result = call()
            returned = time.monotonic()
        except errors as error:
            if did_not_happen(error):
                return None
        with self._lock:
            self.history.append(Operation(kind, called, returned, new, expected, result))
        return result
