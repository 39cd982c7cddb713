"""The record of keys that move from one job to another, as the source's manifest and the target's notice keep it."""

from __future__ import annotations

import msgspec

from tidewheel._checkpoint.names import folder, path
from tidewheel._core.urls import Url
from tidewheel._state.references import FileRef

TRANSFERS = "transfers"
"""The folder below a job's own that holds what moves out, and the notices of what may come in."""


class JobPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job, the state URL that it is at, and the URL of its cells if they are not beside its state."""

    job: str
    state: str
    cells: str | None = None

    def __repr__(self) -> str:
        return f"JobPlace({self.job!r}, {self.state!r}, {Url(self.cells or '')})"


class Transfer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who gives, who takes, and the file that holds what moves."""

    id: str
    run: str
    """The token of the process that moves: its commit in the source's chain decides."""
    source: JobPlace
    target: JobPlace
    file: FileRef
    keys: int
    epoch: int | None = None
    """The epoch that the keys got last in the source."""

    @property
    def payload(self) -> str:
        """The path of the file below the source's state URL."""
        return path(self.source.job, self.file.name)

    @property
    def notice(self) -> str:
        """The path of the notice below the target's state URL."""
        return f"{folder(self.target.job)}/{TRANSFERS}/{self.id}.incoming"
