"""Look up one key of a shard in the state files, in at most two rounds: all indexes at once, then all blocks at once.

A look-up waits for the store, not for the processor. So its cost is the number of sequential reads, whatever the number
of the shard's parts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.state_file import Absent, ReadRange, StateFile

WHOLE_BYTES: Final = 256 * 1024
"""Files up to this size are read completely. For larger files, this much of the end is read, which includes the index."""
_INDEX_SHARE: Final = 64
"""An index is about a hundredth of a large file; a little more than that is read from the end."""
HELD_BYTES: Final = 64 << 20
"""The maximum size of files and indexes cached for later look-ups."""
_THREADS: Final = 64
"""Usually more than a shard has parts, so that the reads of a round run in parallel."""

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")
_Answer = bytes | Absent


class KeyLookup:
    """Looks up single keys in state files, with a cache of indexes: files never change.

    Can be used from several threads.
    """

    def __init__(self, read_range: ReadRange, held_bytes: int = HELD_BYTES, whole_bytes: int = WHOLE_BYTES) -> None:
        """Use the function that reads a range of a state file, the cache size, and the maximum size of files read completely."""
        self._read_range, self._room, self._whole_bytes = read_range, held_bytes, whole_bytes
        self._files: OrderedDict[str, StateFile] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def get(self, parts: ShardParts, shard: int, table: str, key: bytes) -> bytes | None:
        """Return the encoded state of a key in these parts of its shard, or None."""
        refs = [part.file for part in (*reversed(parts.deltas), parts.snapshot) if part is not None]
        files = self._opened(refs)
        answers: list[_Answer | None] = []
        """Newest first. None: a block must be read."""
        for file in files:
            there = file.get(shard, table, key) if self._is_whole(file.ref) else None
            answers.append(there)
            if there is not None and there is not Absent.MISSING:
                break
        unread = [place for place, answer in enumerate(answers) if answer is None]
        blocks = self._at_once(lambda place: files[place].get(shard, table, key), unread)
        for place, answer in zip(unread, blocks, strict=True):
            answers[place] = answer
        newest = next((answer for answer in answers if answer is not Absent.MISSING), None)
        return newest if isinstance(newest, bytes) else None

    def _opened(self, refs: Iterable[FileRef]) -> list[StateFile]:
        with self._lock:
            found = {ref: self._files.get(ref.name) for ref in refs}
            for ref, file in found.items():
                if file is not None:
                    self._files.move_to_end(ref.name)
        missing = [ref for ref, file in found.items() if file is None]
        opened = dict(zip(missing, self._at_once(self._open, missing), strict=True))
        for ref, file in opened.items():
            self._keep(ref, file)
        return [file or opened[ref] for ref, file in found.items()]

    def _open(self, ref: FileRef) -> StateFile:
        if self._is_whole(ref):
            return StateFile.of(self._read_range(ref.name, 0, ref.size), ref)
        return StateFile(self._read_range, ref, self._tail_bytes(ref))

    def _keep(self, ref: FileRef, file: StateFile) -> None:
        with self._lock:
            if ref.name not in self._files:
                self._files[ref.name] = file
                self._held += self._tail_bytes(ref)
            while self._held > self._room and len(self._files) > 1:
                _, oldest = self._files.popitem(last=False)
                self._held -= self._tail_bytes(oldest.ref)

    def _at_once(self, work: Callable[[_Given], _Result], over: Sequence[_Given]) -> list[_Result]:
        if len(over) < 2:
            return [work(each) for each in over]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "tidewheel-look-up")
        return list(self._pool.map(work, over))

    def _is_whole(self, ref: FileRef) -> bool:
        return ref.size <= self._whole_bytes

    def _tail_bytes(self, ref: FileRef) -> int:
        """Return how much of the end of a file to read first, which is about its size in the cache."""
        return min(ref.size, self._whole_bytes + ref.size // _INDEX_SHARE)
