"""A clock that another process sets forward and back: `time.time_ns` of this process, from an offset in a mapped file."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

_BYTES = 8


def follow(path: Path) -> None:
    """Let `time.time_ns` of this process and its forks be ahead by the nanoseconds in the file."""
    with path.open("rb") as file:
        offset = mmap.mmap(file.fileno(), _BYTES, prot=mmap.PROT_READ)
    true_time_ns = time.time_ns
    time.time_ns = lambda: true_time_ns() + int.from_bytes(offset[:_BYTES], "little", signed=True)


def jump(path: Path, seconds: float) -> None:
    """Set how far the clocks that follow this file are ahead."""
    ahead = int(seconds * 1e9).to_bytes(_BYTES, "little", signed=True)
    if not path.exists():
        path.write_bytes(ahead)
        return
    with path.open("rb+") as file:
        os.pwrite(file.fileno(), ahead, 0)
