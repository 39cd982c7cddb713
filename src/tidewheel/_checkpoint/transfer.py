"""The record of keys that move from one job to another, in the source's manifest and the target's notice."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tidewheel._checkpoint.names import folder, path
from tidewheel._core.urls import Url
from tidewheel._state.references import FileRef

TRANSFERS = "transfers"
"""The folder of a job for outgoing keys and for notices of incoming keys."""


TransferId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9]{1,64}\Z")]
"""The id of a transfer, which is part of its file names."""
_Token = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.]*\Z", max_length=200)]


class JobPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job, its state URL, and the URL of its cells if they are not next to its state."""

    job: str
    state: str
    cells: str | None = None

    def __repr__(self) -> str:
        return f"JobPlace({self.job!r}, {self.state!r}, {Url(self.cells or '')})"


def payload_file(transfer: str, number: int) -> str:
    """Return the name of one of the files with the moved keys, by the transfer's id.

    >>> payload_file("ab12", 0), payload_file("ab12", 1)
    ('transfers/ab12.delta', 'transfers/ab12-1.delta')
    """
    return f"{TRANSFERS}/{transfer}{f'-{number}' if number else ''}.delta"


def notice_file(job: str, transfer: str) -> str:
    """Return the path of a transfer's notice below the state URL of the target job.

    >>> notice_file("clicks-eu", "ab12")
    'clicks-eu/transfers/ab12.incoming'
    """
    return f"{folder(job)}/{TRANSFERS}/{transfer}.incoming"


class Transfer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The source, the target, and the files with the moved keys."""

    id: TransferId
    run: _Token
    """The token of the moving process: its commit in the source's chain decides."""
    source: JobPlace
    target: JobPlace
    file: FileRef
    """The last file to be deleted: while it exists, the transfer is not finished."""
    keys: int
    epoch: int | None = None
    """The last epoch that the keys received in the source."""
    more: tuple[FileRef, ...] = ()
    """More files, if one would be too large."""

    def __post_init__(self) -> None:
        # These files are deleted when the transfer ends. A forged record must not name other files.
        for number, file in enumerate(self.files):
            if file.name != payload_file(self.id, number):
                raise ValueError(f"{file.name!r} is not a file of the transfer {self.id!r}")

    @property
    def files(self) -> tuple[FileRef, ...]:
        """All files with the moved keys."""
        return (self.file, *self.more)

    @property
    def payload(self) -> str:
        """The path of `file` below the source's state URL."""
        return path(self.source.job, self.file.name)

    @property
    def notice(self) -> str:
        """The path of the notice below the target's state URL."""
        return notice_file(self.target.job, self.id)
