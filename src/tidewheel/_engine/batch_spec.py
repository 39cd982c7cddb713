"""BatchSpec: what the driver decides for one batch, the same for every task."""

from __future__ import annotations

import msgspec

from tidewheel._checkpoint.manifest import PinnedCell, PinnedTable
from tidewheel._time.frontier import Asked


class WholeRecordsNeeded(Exception):
    """Raised if an error must show a whole record and the task read only some columns: the batch then runs with all columns."""


class BatchSpec(msgspec.Struct, frozen=True):
    """The base that a batch starts from and everything pinned for it."""

    stream: str
    """The stream of the run's chain: the job's name, or `orders/17` for run 17 of a fleet."""
    state: str
    """The state URL."""
    local: str
    """The folder for local copies on whatever host a task runs."""
    base: int
    """The sequence of the manifest that the batch starts from, never "the latest"."""
    base_checksum: int
    sequence: int
    """The sequence that the batch will be committed as."""
    run: str
    n_shards: int
    parallelism: int
    now: int
    after: int | None = None
    """The number of the newest committed batch: the same when this batch runs again, also after a restart."""
    asked: Asked | None = Asked()
    """How long the sources were asked for the batch's data. None: they were not asked, it has no input."""
    held: frozenset[str] = frozenset()
    """The inputs of the clock with a source that is held back: their silence does not count."""
    last_epoch: int | None = None
    behind: dict[int, int | None] = {}
    """The shards that are behind `last_epoch`, each with its own last epoch. They catch up before the data."""
    epoch: int | None = None
    """The epoch that goes out after the batch's data."""
    shards: frozenset[int] | None = None
    """The shards that the run has; None: all."""
    awake: dict[str, frozenset[int]] = {}
    """By table of timers, the shards in which a timer may be due. For a table that is not listed: all shards."""
    shared_key: str | None = None
    """The key's column, where each task of level 1 reads the whole batch itself and keeps the records of its own keys."""
    partial: bool = False
    """Whether tasks read only the columns that the program's functions use, so that an error cannot show a whole record."""
    cells: dict[str, PinnedCell] = {}
    """The value of each cell for the batch."""
    tables: dict[str, PinnedTable] = {}
    """The version of each reference table that the batch uses."""
    sinks: dict[str, bytes] = {}
    """What the sinks have learnt in the driver since the tasks got them."""
    key_kinds: dict[str, str] = {}
    """The key types of earlier batches, in the form of a report: a record with another key type is rejected."""
    silent: bool = False
    """Whether tasks count output instead of staging it, because the batch publishes nothing."""
    warms: bool = False
    """Whether tasks only load the program and bring their local copies up to date; no step runs."""
    figures: bool = False
    """Whether tasks measure the time and the state size of steps."""

    def cell_values(self) -> dict[str, bytes]:
        """Return the encoded value of each cell that has been written."""
        return {name: cell.value for name, cell in self.cells.items() if cell.value is not None}
