"""The records of committed batches, read again from the sources."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel._checkpoint.manifest import Manifest, Position
from tidewheel._checkpoint.spark_log import recorded_kinds
from tidewheel._connectors.source import SourceReader
from tidewheel._core.closing import Closing
from tidewheel._engine.continued_sources import job_sources
from tidewheel._engine.job_sources import JobSources
from tidewheel._engine.plan import source_key
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._engine.stored_names import renamed
from tidewheel._engine.task import SourceSplit
from tidewheel._storage import Store
from tidewheel.errors import ConfigError


@dataclass(frozen=True)
class RecordedBatch:
    """A batch and its input."""

    base: Manifest
    """The commit before the batch."""
    committed: Manifest
    """The commit of the batch, or what is pinned for a batch that has none."""
    splits: Sequence[SourceSplit]
    source_key: str | None = None
    """The source's column that is the key, by which each task finds its own records if each read the whole batch."""


class RecordedInput(Closing):
    """Readers of a program's sources, for batches that a job has committed. They are opened when they are first needed."""

    def __init__(self, job: ProgramJob, store: Store) -> None:
        """Take the program, and the store with the commits of its job."""
        self._plan, self._aliases = job.plan(), job.aliases
        self._seen = SeenFiles(store, job.name, "replay")
        self._opened = contextlib.ExitStack()
        self._sources: JobSources | None = None

    def close(self) -> None:
        """Close the readers."""
        self._opened.close()
        self._sources = None

    def batch(self, base: Manifest, committed: Manifest) -> RecordedBatch:
        """Return a committed batch with its input, in the same splits as when it was committed.

        Raise `ConfigError` if the program or its sources cannot read it again.
        """
        splits = self._splits(base, committed)
        columns = list(self._open().schemas.values()) if committed.layout == "shared" else []
        key = source_key(self._plan, columns[0]) if len(columns) == 1 else None
        return RecordedBatch(base, committed, splits, key)

    def _splits(self, base: Manifest, committed: Manifest) -> list[SourceSplit]:
        names = [node.name for node in self._plan.sources()]
        former = renamed(recorded_kinds(committed), names, self._aliases)
        unknown = sorted(committed.source_offsets.keys() - {former.get(name, name) for name in names})
        if unknown:
            raise ConfigError(
                f"commit {committed.sequence} has read the source {', '.join(map(repr, unknown))}, which the program does not "
                "have"
            )
        if committed.kind != "batch" or committed.source_offsets == base.source_offsets:
            return []
        sources = self._open()
        seen = self._seen.load(committed)
        begins: dict[str, Position] = {}
        ends: dict[str, Position] = {}
        for name, reader in sources.readers.items():
            stored = former.get(name, name)
            reader.reread([file for file in seen if file.source == stored])
            recorded = {**committed.source_starts, **base.source_offsets}
            begins[name] = recorded[stored] if stored in recorded else reader.start()
            ends[name] = committed.source_offsets.get(stored, begins[name])
            if begins[name] != ends[name] and (missing := reader.missing(begins[name], ends[name])) is not None:
                raise ConfigError(
                    f"source {name!r}: the records of commit {committed.sequence} cannot be read again: {missing}. Keep records "
                    "for as long as batches shall run again"
                )
        return sources.splits(begins, ends, max(1, committed.parallelism))

    def next_splits(self, newest: Manifest) -> list[SourceSplit]:
        """Return the input of the batch that follows the newest commit, as far as there is data."""
        sources = self._open()
        former = renamed(recorded_kinds(newest), sources.readers, self._aliases)
        seen = self._seen.load(newest)
        begins: dict[str, Position] = {}
        for name, reader in sources.readers.items():
            stored = former.get(name, name)
            reader.recall([file for file in seen if file.source == stored])
            begins[name] = newest.source_offsets[stored] if stored in newest.source_offsets else reader.start()
        ends = {name: reader.end(begins[name]) for name, reader in sources.readers.items()}
        return sources.splits(begins, ends, 1)

    def _open(self) -> JobSources:
        if self._sources is None:
            readers: dict[str, SourceReader] = {}
            for name, source in job_sources(self._plan).items():
                if not source.has_reader:
                    raise ConfigError(
                        f"source {name!r}: {source.describe()} is read by Spark, and its records cannot be read again here"
                    )
                readers[name] = source.open()
                self._opened.callback(readers[name].close)
                readers[name].receive_nothing()
            self._sources = JobSources(self._plan, readers)
        return self._sources
