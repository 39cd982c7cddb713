"""The sources of one run: their open readers, the positions of their batches, and the files that they have seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._connectors.source import Source, SourceReader, Unread
from tidewheel._engine.batch_loop import Positions
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.continued_sources import check_positions, continued, job_sources, kind_of
from tidewheel._engine.job_sources import JobSources
from tidewheel._engine.run import ChainRun
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._spark.cluster import is_connect
from tidewheel._spark.failures import summary_line
from tidewheel._spark.frame_reader import FrameReader
from tidewheel.errors import ConfigError, TidewheelError


class RunSources:
    """Opens the sources of a run. The readers belong to it until a loop takes them with `take`."""

    opened: JobSources
    """The readers that were opened last."""

    def __init__(self, run: ChainRun, local: Path) -> None:
        """Take the run, and the folder for the checkpoint folders of the queries that read users' DataFrames."""
        self._run, self._local = run, local
        self._prefix = f"spark-{folder(run.stream)}-"
        self._scratch = local / f"{self._prefix}{os.getpid()}-{run.token}"
        self._seen = SeenFiles(run.store, run.stream, run.token)
        self._untaken: dict[str, SourceReader] | None = None
        self._spark: SparkSession

    @property
    def _sources(self) -> dict[str, Source]:
        return job_sources(self._run.plan)

    def open(self, spark: SparkSession) -> None:
        """Open the reader of each source; a DataFrame is read by a streaming query of Spark."""
        self.close()
        self._spark = spark
        readers = self._untaken = {}
        for name, source in self._sources.items():
            readers[name] = self._reader(name, source)
        self.opened = JobSources(self._run.plan, readers)

    def _reader(self, name: str, source: Source) -> SourceReader:
        if not source.has_reader:
            if is_connect(self._spark):
                raise ConfigError(
                    f"source {name!r} is a streaming DataFrame, which a run cannot read through Spark Connect: run the job "
                    "with --master (a classic session), or read the data with sources.files, sources.kafka or another "
                    "source of Tidewheel"
                )
            return FrameReader(self._spark, name, source, self._scratch / folder(name))
        try:
            return source.open()
        except TidewheelError:
            raise
        except Exception as error:
            raise ConfigError(f"source {name!r} ({source.describe()}) cannot be read: {summary_line(error)}") from error

    def close(self) -> None:
        """Close the readers that no loop has taken."""
        for reader in (self._untaken or {}).values():
            reader.close()
        self._untaken = None

    def take(self) -> Mapping[str, SourceReader]:
        """Return the readers; the caller closes them."""
        self._untaken = None
        return self.opened.readers

    def _continued(self, head: Manifest) -> Manifest:
        """Return a commit with the positions of open sources under their present names."""
        if self._untaken is None:
            self.open(self._spark)
        return continued(head, self._sources, self._run.job.aliases, self._seen)

    def check(self, newest: Manifest) -> None:
        """Refuse sources that cannot continue at the positions of the newest commit."""
        check_positions(self._continued(newest), self.opened.readers, self._seen)

    def position(self) -> None:
        """Give the run the positions of its sources, and the readers the files that they have seen."""
        ages = {name: source.seen_age_ms() for name, source in self._sources.items()}
        self._seen.ages = {name: age for name, age in ages.items() if age is not None}
        self._run.head = self._continued(self._run.head)
        seen = self._seen.load(self._run.head)
        for name, reader in self.opened.readers.items():
            reader.recall([file for file in seen if file.source == name])

    def frames(self, starts: Positions, ends: Positions) -> dict[int, DataFrame]:
        """Return the frames of the sources that Spark reads and that have something new, by their numbers."""
        return {
            number: reader.frame()
            for number, (name, reader) in enumerate(self.opened.readers.items())
            if isinstance(reader, FrameReader) and starts[name] != ends[name]
        }

    def progress(self, batch: int, starts: Positions, ends: Positions, sequence: int) -> SourceProgress:
        """Return the record of the sources in the commit of a batch."""
        head, readers = self._run.head, self.opened.readers
        fresh = [
            msgspec.structs.replace(file, source=name)
            for name, reader in readers.items()
            for file in reader.seen(starts[name], ends[name])
        ]
        seen, driver = self._seen.record(head, fresh, sequence, ends)
        # A start position that never changes is not worth a commit.
        positions = {
            name: end
            for name, end in ends.items()
            if name in head.source_offsets or end != starts[name] or not readers[name].fixed_start
        }
        kinds = {name: kind_of(source) for name, source in self._sources.items() if name in positions}
        began = {name: starts[name] for name in positions if name not in head.source_offsets}
        return SourceProgress(batch, positions, kinds, seen, driver, began)

    def unread(self, name: str, source: Source) -> Mapping[str, Unread] | None:
        """Return the backlog of a source, if its reader knows it; None: ask the source. Callable from any thread."""
        opened, position = getattr(self, "opened", None), self._run.head.source_offsets.get(name)
        if opened is None or position is None:
            return None
        found: Mapping[str, Unread] | None = opened.readers[name].unread(position)
        return found

    def remove_folders(self) -> None:
        """Remove the folder of this run."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def remove_old_folders(self) -> None:
        """Remove the folders of this job's runs whose process is gone."""
        for path in self._local.glob(f"{self._prefix}*"):
            pid = path.name.removeprefix(self._prefix).split("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
                shutil.rmtree(path, ignore_errors=True)
