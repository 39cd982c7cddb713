"""State files of bounded size, so that a writer holds only one file in memory and no object is too large to upload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tidewheel._state.packed_run import PackedRun
from tidewheel._state.references import FileRef, PartRef
from tidewheel._state.state_file import Item, StateFileWriter, Table

FILE_BYTES = 64 << 20
"""The approximate maximum size of a state file. More state is written to several files."""

_CHUNK = 8192
_CHUNK_BYTES = 4 << 20

Value = TypeVar("Value", bound=bytes | None)

Store = Callable[[bytes, int], FileRef]
"""Stores the bytes of a state file durably and returns its reference; the number is its checksum."""


class BoundedFiles:
    """Writes sorted items to files of at most about `file_bytes` (64 MiB).

    A shard can be in several files; its parts have no key in common.
    """

    def __init__(self, store: Store, sequence: int = 0, file_bytes: int | None = None) -> None:
        """Use the function that stores a file durably, and the sequence of the parts."""
        self._store, self._sequence, self._file_bytes = store, sequence, file_bytes or FILE_BYTES
        self._writer = StateFileWriter()
        self._parts: dict[int, list[PartRef]] = {}
        self.files: list[FileRef] = []
        """The files stored so far."""

    def add(self, shard: int, table: Table, items: Iterable[Item]) -> None:
        """Add items in ascending key order; a second run of the same shard and table must continue after the first."""
        for chunk in _sliced(items) if isinstance(items, Sequence) else chunked(items):
            self._writer.add(shard, table, chunk)
            if self._writer.size > self._file_bytes:
                self._close()

    def finish(self) -> dict[int, list[PartRef]]:
        """Store everything durably; return the parts by shard."""
        if self._writer.size:
            self._close()
        return self._parts

    def _close(self) -> None:
        writer, self._writer = self._writer, StateFileWriter()
        ref = self._store(*writer.finish())
        self.files.append(ref)
        for shard, part in writer.parts(ref, self._sequence).items():
            self._parts.setdefault(shard, []).append(part)


def _sliced(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield slices of items in memory; their length is estimated from a sample."""
    if isinstance(items, PackedRun):
        return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))
    sample = items[:: len(items) // 32 + 1]
    mean = sum(len(value or b"") for _, value in sample) // max(len(sample), 1)
    step = max(1, min(_CHUNK, _CHUNK_BYTES // max(mean, 1)))
    return (items[start : start + step] for start in range(0, len(items), step))


def chunked(items: Iterable[tuple[bytes, Value]], keys: int = _CHUNK) -> Iterator[list[tuple[bytes, Value]]]:
    """Yield items in lists of at most `keys` keys, fewer if the values are large, so that each list fits in memory.

    >>> [len(chunk) for chunk in chunked((b"%04d" % n, bytes(1 << 20)) for n in range(9))]
    [4, 4, 1]
    """
    chunk: list[tuple[bytes, Value]] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += 0 if item[1] is None else len(item[1])
        if len(chunk) == keys or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
