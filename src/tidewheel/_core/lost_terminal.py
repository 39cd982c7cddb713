"""A terminal that has gone away while a program writes to it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def survive_loss(file: IO[str]) -> Iterator[None]:
    """Write to a file in this block; if it is a terminal that has gone away, let all that is written to it go nowhere.

    Python would try to write what is buffered once more at its end, and end with an error.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)
