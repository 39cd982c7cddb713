"""KeyRun: sorted keys and a parallel list of their values. Pairs are created only on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import ne
from typing import overload


class KeyRun(Sequence[tuple[bytes, bytes | None]]):
    """Pairs of key and value as two lists of equal length, which avoids creating a million pairs.

    >>> run = KeyRun([b"a", b"b", b"c"], [b"1", None, b"3"])
    >>> list(run[1:]), len(run)
    ([(b'b', None), (b'c', b'3')], 3)
    """

    __slots__ = ("keys", "values")

    def __init__(self, keys: list[bytes], values: list[bytes | None]) -> None:
        self.keys, self.values = keys, values

    @classmethod
    def changed(cls, keys: list[bytes], values: list[bytes | None], before: list[bytes | None]) -> KeyRun:
        """Return the keys whose value differs from the one before.

        >>> list(KeyRun.changed([b"a", b"b"], [b"1", b"2"], [b"1", None]))
        [(b'b', b'2')]
        """
        changes = list(map(ne, values, before))
        if all(changes):
            return cls(keys, values)
        return cls(list(compress(keys, changes)), list(compress(values, changes)))

    @classmethod
    def of(cls, items: Sequence[tuple[bytes, bytes | None]]) -> KeyRun:
        """Convert pairs to a run."""
        return items if isinstance(items, KeyRun) else cls([key for key, _ in items], [value for _, value in items])

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> tuple[bytes, bytes | None]: ...
    @overload
    def __getitem__(self, at: slice) -> KeyRun: ...
    def __getitem__(self, at: int | slice) -> tuple[bytes, bytes | None] | KeyRun:
        return KeyRun(self.keys[at], self.values[at]) if isinstance(at, slice) else (self.keys[at], self.values[at])

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        return zip(self.keys, self.values, strict=True)
