"""What files that are stored by column have in common as tasks read them: columns that nobody asks for stay unread."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidewheel._connectors.files.listed import gone
from tidewheel._connectors.split import Split
from tidewheel.errors import TidewheelError

ROWS = 250_000
"""Records of one Arrow batch: enough to share the cost of a batch, and still small in memory."""


@dataclass(frozen=True)
class ColumnarSplit(Split, ABC):
    """A file that is stored by column, or a part of one."""

    path: str
    size: int
    columns: pa.Schema
    only: tuple[str, ...] | None = field(default=None, kw_only=True)
    """The columns to give; None: all. The types of all are checked, so that reading less refuses the same files."""
    reading = "cheap"

    def narrowed(self, names: Collection[str]) -> Split:
        return replace(self, only=tuple(name for name in self.columns.names if name in names))


@contextmanager
def read_errors(path: str, kind: str) -> Iterator[None]:
    """Have what fails meanwhile told with the file, as of its kind (`an ORC file`)."""
    try:
        yield
    except FileNotFoundError as error:
        raise gone(path) from error
    except (pa.ArrowException, OSError) as error:
        raise TidewheelError(f"{path} cannot be read as {kind}: {error}") from error
