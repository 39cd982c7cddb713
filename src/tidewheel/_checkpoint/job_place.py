"""The place of a job: its name, its state URL and its cells."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel._core.urls import Url


@dataclass(frozen=True, repr=False)
class JobPlace:
    """A job, its state URL, and the URL of its cells if they are not next to its state."""

    job: str
    state: str
    cells: str | None = None

    def __repr__(self) -> str:
        return f"JobPlace({self.job!r}, {self.state!r}, {Url(self.cells or '')})"
