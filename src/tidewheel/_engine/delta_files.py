"""State that a commit changes without a batch: an import, an upgrade. Written as delta files of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel._checkpoint.names import path, state_file
from tidewheel._engine.report import Report
from tidewheel._state.references import FileRef
from tidewheel._state.state_file import Item, StateFileWriter

if TYPE_CHECKING:
    from tidewheel._engine.run import ChainRun

_FILE_BYTES = 64 * 1024 * 1024


class DeltaFiles:
    """Delta files for the commit that a run makes next."""

    def __init__(self, run: ChainRun) -> None:
        """Begin with nothing."""
        self._run = run
        self._sequence = run.head.sequence + 1
        self._reports: list[Report] = []
        self._writer = StateFileWriter()
        self._bytes = 0

    def add(self, shard: int, table: str, items: list[Item]) -> None:
        """Take a table of a shard, in any order of keys; each shard and table once."""
        if not items:
            return
        if self._bytes > _FILE_BYTES:
            self._close()
        self._writer.add(shard, table, sorted(items, key=lambda item: item[0]))
        self._bytes += sum(len(key) + len(value or b"") for key, value in items)

    def finish(self) -> list[Report]:
        """Make all of it durable; return it as the reports that the commit takes."""
        self._close()
        return self._reports

    def _close(self) -> None:
        if not self._bytes:
            return
        data, checksum = self._writer.finish()
        number = len(self._reports)
        name = state_file(self._sequence, self._run.token, number, 0, "delta")
        self._run.store.create(path(self._run.stream, name), data)
        parts = self._writer.parts(FileRef(name, len(data), checksum), self._sequence)
        self._reports.append(Report(1, number, deltas=parts))
        self._writer, self._bytes = StateFileWriter(), 0
