"""Files that Spark listed for a batch: there, and as they were, or an error that names them."""

from __future__ import annotations

import os
import socket

from tidewheel.errors import StorageError

LISTING = frozenset(
    {"filenameonly", "latestfirst", "maxbytespertrigger", "maxfileage", "maxfilespertrigger", "pathglobfilter"}
)
"""Spark's options, in small letters, that say which files are in a batch and nothing of how they are read."""


def size_of(path: str, changed_at: int) -> int:
    """Return the size of a file in bytes; `changed_at` is when it was changed last, in ms since 1970, as Spark listed it."""
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise gone(path) from error
    if status.st_mtime_ns // 1_000_000 != changed_at:
        raise StorageError(
            f"{path} was changed after Spark had listed it for a batch; files of a source must appear whole and never change. "
            "Put the file back as it was, and give the changed one another name"
        )
    return status.st_size


def gone(path: str) -> StorageError:
    """Return the error for a file that is no longer there."""
    where = socket.gethostname()
    return StorageError(
        f"{path} is gone, or is not on the host {where}, and a batch that is not committed has to read it; put it back. Tasks on "
        "other hosts need the folder under the same path"
    )
