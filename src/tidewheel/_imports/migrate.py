"""migrate: the offsets and the state of a Spark query become the first commit of a job."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tidewheel._checkpoint.manifest import Position, SeenFile
from tidewheel._checkpoint.spark_folder import SparkFolder, newest_batches, spark_folder
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._connectors.source import Source
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.continued_sources import job_sources, kind_of
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._imports.imported_step import ImportedStep, check_no_batch, commit_import, importable, key_twice
from tidewheel._imports.migration import (
    FromSpark,
    Migrations,
    SparkState,
    StepMigration,
    assigned,
    entries_of,
    kept,
    source_position,
    unclaimed,
)
from tidewheel._imports.spark_state import SparkOperator, operators, states
from tidewheel._spark.session import session
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError, StateError, StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class MigratedSource:
    """A source that continues where the query stopped."""

    name: str
    source: int
    kind: str
    position: Position | None
    files: int


@dataclass
class MigratedStep:
    """A step that has the state of an operator of the query."""

    name: str
    operator: int
    kind: str
    keys: int
    timers: int
    notes: list[str] = field(default_factory=list)
    samples: list[tuple[SparkState, Any]] = field(default_factory=list)


@dataclass
class Migrated:
    """The result of a migration, or of its dry run."""

    batch: int
    """The newest batch that the query committed."""
    query: list[str] = field(default_factory=list)
    """The sources and stateful operators of the query, with their numbers."""
    sources: list[MigratedSource] = field(default_factory=list)
    steps: list[MigratedStep] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """The problems, each with advice. Without a dry run, the first problem is raised."""
    notes: list[str] = field(default_factory=list)


def migrate(
    job: ProgramJob,
    checkpoint: str,
    migrations: Migrations,
    *,
    dry_run: bool = False,
    without_offsets: bool = False,
    without_sources: Collection[int] = (),
    without_operators: Collection[int] = (),
    samples: int = 3,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Migrated:
    """Make the offsets and the state of a Spark query the first commit of a job; return a summary.

    `checkpoint` is the query's checkpointLocation, which is only read. The query must be stopped. Either everything is
    committed or nothing. A dry run commits nothing, and reports what cannot be migrated instead of raising it. The
    offsets of `without_sources` and the state of `without_operators` are left behind.
    """
    plan = job.plan()
    sources, able = job_sources(plan), importable(plan)
    entries = entries_of(migrations, [*sources, *able], f"job {job.name!r}")
    check_no_batch(job.name, StreamCheckpoints(open_store(job.state), job.name).latest())
    spark = session(master, conf)
    checkpoint = checkpoint.rstrip("/")
    try:
        folder = _read_folder(spark, checkpoint)
        found = {each.number: each for each in operators(spark, checkpoint)}
    except PySparkException as error:
        raise ConfigError(f"Spark cannot read the checkpoint {checkpoint}: {_first_line(error)}") from error
    migrated = Migrated(folder.batch, _described(folder, found.values()))
    if folder.begun is not None:
        migrated.notes.append(
            f"batch {folder.begun} was begun and not committed: the job reads it again. Remove its rows from the query's sink"
        )
    begin: list[tuple[str, Position, list[SeenFile]]] = []
    chosen: dict[str, int] = {}
    migrated.refused += [
        each.refusal for number, each in found.items() if number not in without_operators and each.refusal is not None
    ]
    try:
        read = kept(_kinds(folder), without_sources, "source")
        if not without_offsets:
            begin = _sources(migrated, sources, entries, folder, read, dry_run)
        names = kept({number: each.name for number, each in found.items()}, without_operators, "operator")
        takeable = {number: name for number, name in names.items() if found[number].refusal is None}
        wanted = {name: entry.operator for name, entry in entries.items() if name in able}
        chosen = assigned(able, wanted, list(takeable), "operator")
        migrated.refused += unclaimed(chosen, takeable, "operator")
    except ConfigError as error:
        if not dry_run:
            raise
        migrated.refused.append(str(error))
    if migrated.refused and not dry_run:
        raise StateError(f"{migrated.refused[0]}. Nothing is migrated")
    now = time.time_ns()
    with SortedRuns(key_twice) as written:
        steps = []
        for name, number in chosen.items():
            step, entry = ImportedStep(plan, name, job.n_shards), entries.get(name, FromSpark())
            steps.append(step)
            try:
                _step(migrated, step, spark, checkpoint, found[number], entry, now, written, samples)
            except (StateError, StepError) as error:
                if not dry_run:
                    raise
                migrated.refused.append(str(error))
        if not dry_run:
            kinds = {name: kind_of(sources[name]) for name, _, _ in begin}

            def progress(run: JobRun) -> SourceProgress:
                seen = SeenFiles(run.store, job.name, run.token)
                files = [file for _, _, each in begin for file in each]
                inline, driver = seen.record(run.head, files, run.head.sequence + 1, sources)
                return SourceProgress(folder.batch, {name: at for name, at, _ in begin}, kinds, inline, driver)

            commit_import(JobRun(job, plan), steps, written, progress)
    return migrated


def _described(folder: SparkFolder, found: Iterable[SparkOperator]) -> list[str]:
    sources = [f"source {number}: {kind}" for number, kind in _kinds(folder).items()]
    variables = ((each, f": {', '.join(each.variables)}" if each.variables else "") for each in found)
    return [*sources, *(f"operator {each.number}: {each.name}{names}" for each, names in variables)]


def _kinds(folder: SparkFolder) -> dict[int, str]:
    return {number: folder.kind(number) or "other" for number in range(len(folder.offsets))}


def _sources(
    migrated: Migrated,
    sources: Mapping[str, Source],
    entries: Mapping[str, FromSpark],
    folder: SparkFolder,
    read: Mapping[int, str],
    dry_run: bool,
) -> list[tuple[str, Position, list[SeenFile]]]:
    wanted = {name: entry.source for name, entry in entries.items() if name in sources}
    chosen = assigned(list(sources), wanted, list(read), "source")
    # A job that does not continue a source would read again the records that are already in the state.
    migrated.refused += unclaimed(chosen, read, "source")
    begin = []
    for name, number in chosen.items():
        try:
            position, seen = source_position(name, sources[name], folder, number)
        except StateError as error:
            if not dry_run:
                raise
            migrated.refused.append(str(error))
            continue
        migrated.sources.append(MigratedSource(name, number, folder.kind(number) or "", position, len(seen)))
        if position is not None:
            begin.append((name, position, seen))
    return begin


def _step(
    migrated: Migrated,
    step: ImportedStep,
    spark: SparkSession,
    checkpoint: str,
    operator: SparkOperator,
    entry: FromSpark,
    now: int,
    written: SortedRuns,
    samples: int,
) -> None:
    mapping = StepMigration(step, entry, operator.clock)
    for old in states(spark, checkpoint, operator, migrated.batch, now):
        mapping.add(written, old, samples)
    migrated.steps.append(
        MigratedStep(
            *(step.name, operator.number, operator.name, step.count, mapping.timers if step.has_timers else 0),
            mapping.notes(),
            mapping.samples,
        )
    )


def _read_folder(spark: SparkSession, checkpoint: str) -> SparkFolder:
    """Read the logs with Spark, which reads every file system that the query could write to."""
    commits = _texts(spark, f"{checkpoint}/commits")
    offsets = _texts(spark, f"{checkpoint}/offsets")
    batch, begun = newest_batches(list(offsets), list(commits), checkpoint)
    lines = len(offsets[str(batch)].removesuffix("\n").split("\n")) - 2
    logs = {number: _texts(spark, f"{checkpoint}/sources/{number}", missing_ok=True) for number in range(lines)}
    return spark_folder(batch, begun, offsets[str(batch)], logs, checkpoint)


def _texts(spark: SparkSession, folder: str, *, missing_ok: bool = False) -> dict[str, str]:
    """Return the text of each file of a folder, by name."""
    try:
        rows = spark.read.text(folder, wholetext=True).select(F.col("_metadata.file_name"), "value").collect()
    except PySparkException as error:
        if missing_ok and "PATH_NOT_FOUND" in str(error):
            return {}
        raise
    return {row[0]: row[1] for row in rows}


def _first_line(error: PySparkException) -> str:
    return str(error).strip().partition("\n")[0]
