"""Local copies: committed state of shards in LMDB, on the machine that works on them.

A copy is a cache of the parts that a manifest names. It contains only committed state and only moves forward, so
retries and several processes on one machine are harmless: the second one finds the work done.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tidewheel._state.local_copy import CopyLimits, ShardCopy
from tidewheel._state.old_copies import remove_old_copies
from tidewheel._state.shard_reader import ShardReader
from tidewheel.errors import StateError

__all__ = ["CopyLimits", "LocalCopies", "ShardCopy", "ShardReader", "folder_name", "temporary_copies"]

_LIMITS: Final = CopyLimits()
_DESCRIPTORS: Final = 3
"""The number of open files per copy: LMDB opens the data twice, and the lock."""

MAPPED: Final = 384 << 20
"""The maximum size of mapped files in a worker before it releases them; a quarter of it is libraries."""


def folder_name(job: str, lineage: str) -> str:
    """Return the name of the folder for a job's local copies on this boot of this machine.

    The runs of a fleet, `job/1`, `job/2`, share one folder: the parts of a shard have ascending labels, whichever run holds
    it.
    """
    return f"{quote(job.partition('/')[0], safe='')[:100]}-{lineage}-{boot_id()}"


class LocalCopies:
    """The local copies below one folder; `LocalCopies.at(folder)` returns the only object of this process.

    LMDB forbids opening an environment twice in a process, and using one after a fork: a forked child cannot use the
    folders that its parent had opened.
    """

    _open: dict[str, LocalCopies] = {}  # noqa: RUF012
    _inherited: dict[str, LocalCopies] = {}  # noqa: RUF012
    _lock = threading.Lock()

    def __init__(self, folder: str | Path, limits: CopyLimits = _LIMITS) -> None:
        self.folder = Path(folder)
        self.limits = limits
        self._shards: dict[int, ShardCopy] = {}

    @classmethod
    def at(cls, folder: str | Path, limits: CopyLimits = _LIMITS) -> LocalCopies:
        """Return this process's copies below the folder; only the first call's limits are used."""
        key = os.path.realpath(folder)
        with cls._lock:
            if key in cls._inherited:
                raise StateError(
                    f"the local copies in {key} were opened before this process was forked, and cannot be used "
                    "here: open them after forking only, or start processes by spawning"
                )
            if key not in cls._open:
                remove_old_copies(Path(key))
                cls._open[key] = cls(key, limits)
            return cls._open[key]

    def shard(self, number: int) -> ShardCopy:
        """Return the copy of a shard; create an empty one if it does not exist."""
        copy = self._shards.get(number)
        if copy is None:
            with self._lock:
                copy = self._shards.get(number)
                if copy is None:
                    copy = self._shards[number] = ShardCopy(self.folder, number, self.limits)
        return copy

    def close(self) -> None:
        """Close every environment; close the readers first."""
        with self._lock:
            for copy in self._shards.values():
                copy.close()
            self._shards.clear()
            self._open.pop(str(self.folder), None)

    def crowded(self, limit: int = MAPPED) -> bool:
        """Return whether this process has mapped more than `limit` bytes of files, or opened half of the allowed files.

        Data stays in the system's cache. But mapped pages count as the process's memory, which would grow with the
        state until a memory limit ends the process. The other half of the files is for connections and other jobs.
        """
        may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return len(self._shards) * _DESCRIPTORS * 2 >= may_open != resource.RLIM_INFINITY or _mapped() > limit

    def relieve(self) -> None:
        """Unmap the copies without readers; they are opened again on demand."""
        with self._lock:
            self._shards = {number: copy for number, copy in self._shards.items() if not copy.release()}

    @classmethod
    def _after_fork(cls) -> None:
        # The child must not even close inherited environments: that would free the reader slots of its parent.
        cls._inherited.update(cls._open)
        cls._open.clear()
        cls._lock = threading.Lock()

    @classmethod
    def close_below(cls, folder: str) -> None:
        """Close all copies of this process below a folder; close their readers first."""
        below = os.path.realpath(folder) + os.sep
        for key, copies in list(cls._open.items()):
            if key.startswith(below):
                copies.close()


os.register_at_fork(after_in_child=LocalCopies._after_fork)


@contextlib.contextmanager
def temporary_copies(use: str) -> Iterator[str]:
    """Provide a folder for local copies; at the end, close the copies in it and delete it."""
    with tempfile.TemporaryDirectory(prefix=f"tidewheel-{use}-") as folder:
        try:
            yield folder
        finally:
            LocalCopies.close_below(folder)


def _mapped() -> int:
    """Return how many bytes of files this process has mapped and read; 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return a name for this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # If the kernel has no boot id, use the boot time, which also changes with every boot.
        boot_time = subprocess.run(["sysctl", "-n", "kern.boottime"], capture_output=True, text=True, check=True)
        return "".join(letter for letter in boot_time.stdout.split("}")[0] if letter.isdigit())
