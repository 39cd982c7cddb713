"""State that a commit changes without a batch, by an import or an upgrade, written as delta files of bounded size."""

from __future__ import annotations

from itertools import count

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import state_file
from tidewheel._checkpoint.state_files import file_store
from tidewheel._engine.report import Report
from tidewheel._state.bounded_files import BoundedFiles
from tidewheel._storage import Store


class DeltaFiles(BoundedFiles):
    """Delta files for the commit after the newest one."""

    def __init__(self, store: Store, head: Manifest, run: str) -> None:
        """Begin with nothing. `run` is the token of the run that makes the commit."""
        sequence = head.sequence + 1
        names = (state_file(sequence, run, number, 0, "delta") for number in count())
        super().__init__(file_store(store, head.id.stream_id, names), sequence)

    def reports(self) -> list[Report]:
        """Make all of it durable; return it as the reports that the commit takes."""
        parts = self.finish()
        return [Report(1, 0, deltas=parts)] if parts else []
