"""The interface of a user's job for a run."""

from __future__ import annotations

from typing import Any, Protocol

from tidewheel._cells.live import JobCell
from tidewheel._engine.plan import Plan
from tidewheel._operators.graph import Graph


class ProgramJob(Protocol):
    """A job: its graph, where its state is, and how its checkpoints are kept. `tidewheel.Job` is one."""

    name: str
    state: str
    n_shards: int
    keep: int
    keep_age: int | None
    keeps_source: bool
    grace: int
    snapshot_every: int | None
    collect_every: int
    aliases: dict[str, tuple[str, ...]]
    graph: Graph
    cells_at: str | None
    align: int | None

    @property
    def cells_url(self) -> str:
        """The URL of the job's cells."""

    @property
    def declared_cells(self) -> tuple[JobCell[Any], ...]:
        """The live configuration that the program declares."""

    def plan(self) -> Plan:
        """Check the graph and cut it into levels."""
