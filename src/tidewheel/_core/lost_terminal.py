"""Handle a terminal that closes while a program writes to it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def survive_loss(file: IO[str]) -> Iterator[None]:
    """Write to a file in this block; if it is a terminal that was closed, discard all output to it.

    Otherwise Python would try to flush the buffer at exit, and exit with an error.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
