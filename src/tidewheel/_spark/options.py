"""RunOptions: how a job is run. Python, the command line and configuration files share this declaration."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tidewheel._engine.batch_loop import Trigger
from tidewheel._spark.option_kinds import (
    ADDRESS,
    FLAG,
    NAMES,
    PORT,
    SETTINGS,
    TASKS,
    TEXT,
    UNTIL,
    Kind,
    duration,
    whole_number,
)
from tidewheel._spark.progress import BatchProgress
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_TICK = 1_000_000
"""The shortest tick in ns: with a shorter one, an idle job would only check the clock."""

_LEAST_BATCH = 100_000_000
"""The shortest wanted duration of a batch in ns: most of a shorter batch does not depend on its size."""

_LEAST_LEASE = 10**9
"""The shortest lease in ns: with a shorter one, a busy machine would lose its jobs."""

Until = Literal["caught-up", "end"]
"""When a run ends by itself."""
Parallelism = int | Literal["auto"]
"""The number of tasks of a batch; "auto": the run chooses it by the load."""


@dataclass(frozen=True)
class Option:
    """How an option is written on the command line and in a configuration file."""

    kind: Kind
    help: str
    default: Any = None

    def check(self, name: str, value: Any) -> None:
        """Raise for an invalid value."""
        if value is not None or not (self.default is None or self.kind.none_word):
            self.kind.check(name, value)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a job: all options of `Job.run`, the `tidewheel run` command and `tidewheel.toml`.

    Every option but the last four (`spark`, `progress`, `on_phase` and `on_readers`) is also an option of the command
    line (`--take-over`) and a key of a configuration file (`take_over = true`). See docs/running.md for a table.

    >>> from tidewheel import RunOptions
    >>> RunOptions(restarts=5, backoff="10 s").restarts
    5
    >>> RunOptions(restarts=-1)
    Traceback (most recent call last):
    tidewheel.errors.ConfigError: restarts must be a whole number from 0, not -1
    """

    until: Annotated[
        Until | None,
        Option(
            UNTIL,
            "'caught-up': read all available data and end; a later run continues. 'end': read all available data, close every "
            "window, and end the job permanently. By default a run continues until it is stopped.",
        ),
    ] = None
    every: Annotated[
        Duration | None,
        Option(
            duration(),
            "The interval between batches, such as '5 seconds'. By default a batch begins as soon as data arrives.",
        ),
    ] = None
    max_batch: Annotated[
        Duration | None,
        Option(
            duration(least=_LEAST_BATCH),
            "About how long a batch should take, such as '2 seconds': batches of a backlog are sized by the speed of the batches "
            "before. By default a batch takes all new data, within the limits of its source.",
        ),
    ] = None
    parallelism: Annotated[
        Parallelism | None,
        Option(
            TASKS,
            "Tasks per batch, up to the job's shards; can differ between runs. 'auto': as many as the load needs. By default one "
            "task per core.",
        ),
    ] = None
    state: Annotated[
        str | None,
        Option(
            TEXT.shown("URL"), "The state URL: file:///data/state, s3://bucket/prefix, …; by default the program's."
        ),
    ] = None
    master: Annotated[
        str | None,
        Option(TEXT, "Spark's master: local[4], spark://host:7077, sc://host:15002, …; by default this machine."),
    ] = None
    conf: Annotated[Mapping[str, str], Option(SETTINGS, "A setting for a new Spark session; can be repeated.")] = (
        dataclasses.field(default_factory=dict)
    )
    restarts: Annotated[
        int, Option(whole_number(0), "How many consecutive failures to survive by restarting from the last commit.")
    ] = 0
    backoff: Annotated[Duration, Option(duration(), "The wait before the first restart; doubles each time.")] = "1 s"
    take_over: Annotated[bool, Option(FLAG, "Fence the current run: it stops at its next commit.")] = False
    lease: Annotated[
        Duration,
        Option(
            duration(least=_LEAST_LEASE),
            "How long another machine waits for a sign of life before it takes the job of a dead run; the run renews its lease "
            "three times in that time.",
        ),
    ] = "15 s"
    allow_dropped_state: Annotated[
        Collection[str],
        Option(NAMES.shown("STEP"), "Delete the state of this step, which the program no longer has; can be repeated."),
    ] = ()
    allow_dropped_source: Annotated[
        Collection[str],
        Option(
            NAMES.shown("SOURCE"), "Drop the offsets of this source, which the program no longer has; can be repeated."
        ),
    ] = ()
    drop_unpublished: Annotated[
        Collection[str],
        Option(
            NAMES.shown("SINK"),
            "Drop unpublished output of this sink after a crash, or keep its output in place after a restore; can be repeated.",
        ),
    ] = ()
    local: Annotated[
        str | None,
        Option(
            TEXT.shown("DIR"),
            "The folder for local copies of the state, on every host; by default TIDEWHEEL_LOCAL of each host.",
        ),
    ] = None
    shared_state: Annotated[bool, Option(FLAG, "The state folder is on a file system that all hosts share.")] = False
    tick: Annotated[
        Duration,
        Option(
            duration(least=_LEAST_TICK),
            "The interval of batches while sources are quiet and the job waits for time.",
        ),
    ] = "1 s"
    serve: Annotated[int | None, Option(PORT, "Answer look-ups on this port of 127.0.0.1: GET /STEP/KEY.")] = None
    metrics: Annotated[
        int | str | None, Option(ADDRESS, "Serve /metrics, /health and /ready; by default on 127.0.0.1.")
    ] = None
    ready_within: Annotated[Duration, Option(duration(), "The maximum age of the last commit for /ready.")] = "5 min"
    history: Annotated[
        Duration | None,
        Option(
            duration(least=1).or_none, "How long to keep figures and errors at the state URL; 'none' records nothing."
        ),
    ] = "7 days"
    spark: "SparkSession | None" = None
    """An existing Spark session to use."""
    progress: Callable[[BatchProgress], None] | None = None
    """Called with each committed batch."""
    on_phase: Callable[[str | None], None] | None = None
    """Called with each phase of the start: "checking", "Spark", "hosts", "claiming", "standby" (in `Job.standby`),
    "rebuilding" and "first batch"; and with None when the first batch is committed or the sources have no data."""
    on_readers: Callable[[Mapping[str, str]], None] | None = None
    """Called at the start with the reader of each source: "arrow", or "spark, because it is a DataFrame"."""

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            option.check(name, getattr(self, name))
        if self.until is not None and self.every is not None:
            raise ConfigError(
                f"until={self.until!r} reads all available data and ends, so every={self.every!r} has no effect: leave one out"
            )

    @classmethod
    def load(cls, path: str | PathLike[str] = "tidewheel.toml", *, profile: str | None = None) -> "RunOptions":
        """Read options from a configuration file.

        - `path`: the file. Its table `[run]` has the options of all profiles, `[profiles.NAME]` those of one profile.
        - `profile`: the name of a profile, whose options take precedence over `[run]`. None reads `[run]` alone.
        """
        from tidewheel._spark.config_file import read_options

        return cls(**read_options(path, profile))

    @property
    def bounded(self) -> bool:
        """Whether the run ends the job permanently."""
        return self.until == "end"

    def loop_trigger(self, *, ticks: bool) -> Trigger:
        """Return when the loop looks for data. With `ticks`, batches also run while there is no data."""
        longest = None if self.max_batch is None else seconds(self.max_batch, "max_batch")
        if self.until is not None:
            return Trigger(ends=True, longest=longest)
        interval = 0.0 if self.every is None else seconds(self.every, "every")
        return Trigger(interval, seconds(self.tick, "tick") if ticks else None, longest=longest)


OPTIONS: dict[str, Option] = {
    each.name: dataclasses.replace(option, default=() if each.default is dataclasses.MISSING else each.default)
    for each in dataclasses.fields(RunOptions)
    for option in getattr(each.type, "__metadata__", ())
}
"""The options that the command line and configuration files know, by their name in Python."""
