"""State files of bounded size: whoever writes much state has one file of it in memory, and no object is too large for a put."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tidewheel._state.references import FileRef, PartRef
from tidewheel._state.state_file import Item, StateFileWriter, Table

FILE_BYTES = 64 << 20
"""About how large a state file may be. What is larger is in several."""

_CHUNK = 8192
_CHUNK_BYTES = 4 << 20

Value = TypeVar("Value", bound=bytes | None)

Store = Callable[[bytes, int], FileRef]
"""Makes the bytes of a state file durable, and returns the reference to it; the number is its checksum."""


class BoundedFiles:
    """Writes runs of items into files, each about as large as `file_bytes` (64 MiB) at most.

    A shard may be in several of them: its parts have no key in common.
    """

    def __init__(self, store: Store, sequence: int = 0, file_bytes: int | None = None) -> None:
        """Take the function that makes a file durable, and the commit that the parts are of."""
        self._store, self._sequence, self._file_bytes = store, sequence, file_bytes or FILE_BYTES
        self._writer = StateFileWriter()
        self._parts: dict[int, list[PartRef]] = {}
        self.files: list[FileRef] = []
        """What is durable so far."""

    def add(self, shard: int, table: Table, items: Iterable[Item]) -> None:
        """Take items, ascending by key; a second run of the same shard and table goes on where the first one ended."""
        for chunk in _sliced(items) if isinstance(items, Sequence) else chunked(items):
            self._writer.add(shard, table, chunk)
            if self._writer.size > self._file_bytes:
                self._close()

    def finish(self) -> dict[int, list[PartRef]]:
        """Make all of it durable; return the parts by shard."""
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
    """Yield slices of what is in memory anyway: a sample tells how large they are, nobody looks at each item."""
    sample = items[:: len(items) // 32 + 1]
    mean = sum(len(value or b"") for _, value in sample) // max(len(sample), 1)
    step = max(1, min(_CHUNK, _CHUNK_BYTES // max(mean, 1)))
    return (items[start : start + step] for start in range(0, len(items), step))


def chunked(items: Iterable[tuple[bytes, Value]], keys: int = _CHUNK) -> Iterator[list[tuple[bytes, Value]]]:
    """Yield items in lists of so many keys, or fewer if the values are large: they are fine to hold in memory.

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
