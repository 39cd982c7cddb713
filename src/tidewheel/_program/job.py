"""Job: a named program with its state URL and the way to run it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from tidewheel._cells.live import JobCell, Record, TypeOfDefault
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._checkpoint.names import DEFAULT_STATE
from tidewheel._connectors.sink import Sink
from tidewheel._connectors.source import Source, as_source
from tidewheel._connectors.tables.given import as_table_source
from tidewheel._connectors.tables.table import Table, TableSource
from tidewheel._core.keys import check_n_shards
from tidewheel._core.urls import Url
from tidewheel._engine.control import cells_of, rescale
from tidewheel._engine.key_kinds import check_joins, declared_kinds
from tidewheel._engine.plan import Plan, make_plan
from tidewheel._operators.graph import NAME, Graph, Port
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._operators.time_checks import check_lateness
from tidewheel._program.arguments import single_column
from tidewheel._program.stream import Stream
from tidewheel._storage import absolute
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values import Row, shape_of
from tidewheel.errors import ConfigError, GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewheel._checkpoint.tools.state_reader import Found
    from tidewheel._engine.lookup import Lookup
    from tidewheel._program.running import Run
    from tidewheel._replay.switch_run import Switching
    from tidewheel._spark.old_options import OldArguments
    from tidewheel._spark.options import Parallelism, RunOptions, Until
    from tidewheel._spark.progress import RunResult

K = TypeVar("K")
V = TypeVar("V")


class Job:
    """A named program: a graph of named steps, a state URL, and a fixed number of shards.

    >>> from tidewheel import Job, sinks, sources
    >>> from tidewheel.testing import run_in_memory
    >>> job = Job("clicks", state="file:///var/lib/tidewheel")
    >>> clicks = job.source("in", sources.files("clicks/", schema="user string, cents long"))
    >>> totals = clicks.key_by("by-user", "user", value="cents").stateful_map(
    ...     "total", lambda user, cents, total: (total + cents, total + cents), default=0)
    >>> _ = totals.sink("out", sinks.files("totals/"))
    >>> run_in_memory(job, {"in": [{"user": "ada", "cents": 3}, {"user": "ada", "cents": 4}]}).states
    {'total': {'ada': 7}}
    """

    def __init__(
        self,
        name: str,
        *,
        state: str = DEFAULT_STATE,
        n_shards: int = 64,
        keep: int | Duration = 10,
        keep_for_replay: Duration | None = None,
        collect_every: int = 20,
        snapshot_every: int | None = None,
        grace: Duration | Literal[0] = "10 min",
        cells: str | None = None,
        align: Duration | None = None,
    ) -> None:
        """Create a job with a name and a state URL.

        - `name`: letters, digits, '_', '-' and '.'; unique at its state URL.
        - `state`: the URL of the durable state: a folder (`file:///abs`, `file:rel`), an object store (`s3://bucket/path`), or
          `memory:name` for tests.
        - `n_shards`: a power of two, fixed for the life of the state. It bounds the parallelism.
        - `keep`: how many checkpoints to keep, or how long to keep each: "7 days", or a `timedelta`. The newest is
          always kept.
        - `keep_for_replay`: how long to keep every checkpoint, in addition to `keep`, so that batches of that time can run
          again (`tidewheel replay`, `explain`, `shadow`). The sources must keep the records for as long. The files in
          which the program's functions are written are stored too (`tidewheel checkpoints program`).
        - `collect_every`: the number of commits after which expired checkpoints and unused files are deleted.
        - `grace`: the minimum age of a file to be deleted; 0 deletes unused files at once. Pin a checkpoint if reading
          it takes longer.
        - `snapshot_every`: the approximate number of commits that change a shard before the whole shard is written
          again. None writes a shard again when its changes outweigh it, and merges the changes until then, which writes
          the least data. A small number makes a start on a new machine faster.
        - `cells`: the URL of the job's cells, such as `etcd://host:2379/jobs`. None stores them next to the state.
        - `align`: how far one source may be ahead of another in event time, such as "1 hour", so that a backfill does not
          collect the other sources' messages in state. A source that is further ahead is not read until the others have
          caught up. It can be changed at any time.
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise GraphError(
                f"a job's name may have letters, digits, '_', '-' and '.', and begins with a letter or digit; "
                f"{name!r} does not fit"
            )
        check_n_shards(n_shards)
        number = keep if isinstance(keep, int) else 1
        if min(number, collect_every, snapshot_every or 1) < 1:
            raise GraphError("keep, collect_every and snapshot_every must be at least 1")
        self.name = name
        # Make the URL absolute now: the program may change its working directory later.
        self.state = absolute(state)
        self.n_shards = n_shards
        self.keep = number
        ages = [] if isinstance(keep, int) else [nanoseconds(keep, "keep", least=1)]
        if keep_for_replay is not None:
            ages.append(nanoseconds(keep_for_replay, "keep_for_replay", least=1))
        self.keeps_source = keep_for_replay is not None
        """Whether starts store the source of the program."""
        self.keep_age = max(ages, default=None)
        """The age in ns at which a checkpoint expires; None if only the number of checkpoints counts."""
        self.collect_every = collect_every
        self.snapshot_every = snapshot_every
        self.grace = nanoseconds(grace or "0 s", "grace")
        """The minimum age in ns of a file to be deleted."""
        self.align = None if align is None else nanoseconds(align, "align", least=1)
        """How many ns a source may be ahead of another in event time; None: any."""
        self.graph = Graph()
        self.cells_at = None if cells is None else absolute(cells)
        self._cells: dict[str, JobCell[Any]] = {}
        self.declared_tables: dict[str, Table] = {}
        self._dead_letter: int | None = None
        self.aliases: dict[str, tuple[str, ...]] = {}
        self._opened_lookup: Lookup | None = None

    def __repr__(self) -> str:
        return f"<Job {self.name!r}, {len(self.graph.nodes)} steps, state at {Url(self.state)}>"

    @overload
    def source(self, name: str, source: Source[Any] | Callable[[SparkSession], Any], *, type: type[V]) -> Stream[V]: ...
    @overload
    def source(self, name: str, source: Source[V], *, type: None = None) -> Stream[V]: ...
    @overload
    def source(self, name: str, source: Callable[[SparkSession], Any], *, type: None = None) -> Stream[Row]: ...
    @overload
    def source(
        self, name: str, source: Source[Any] | Callable[[SparkSession], Any], *, type: UnionType
    ) -> Stream[Any]: ...
    def source(
        self,
        name: str,
        source: Source[Any] | Callable[[SparkSession], Any],
        *,
        type: Any = None,
        value: Any = None,
    ) -> Stream[Any]:
        """Add a source of records and return its stream.

        - `name`: the name of the source, unique in the job.
        - `source`: one of `tidewheel.sources`, or any function from a Spark session to a streaming DataFrame.
        - `type`: the Python type of a record: a dataclass or a `msgspec.Struct`, whose fields select the columns;
          `dict`; a type such as `int` for a single column; or `Row`, with columns as attributes, the default of most
          sources.
        - `value`: the old name of `type`; deprecated.

        >>> from dataclasses import dataclass
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> @dataclass
        ... class Order:
        ...     user: str
        ...     cents: int
        >>> job = Job("orders")
        >>> orders = job.source("in", sources.files("orders/", "json"), type=Order)
        >>> _ = orders.filter("big", lambda order: order.cents > 100).sink("out", sinks.collect())
        >>> run_in_memory(job, {"in": [Order("ada", 250), Order("bob", 90)]}).outputs["out"]
        [{'user': 'ada', 'cents': 250}]
        """
        if not isinstance(source, Source) and not callable(source):
            raise GraphError(
                f"source {name!r}: {source!r} is neither a source nor a function from a Spark session to a DataFrame"
            )
        if value is not None:
            warnings.warn(
                f"source {name!r}: value= is now called type=; the old name ends with version 0.3",
                DeprecationWarning,
                stacklevel=2,
            )
            type = value
        wrapped = as_source(source)
        shape = wrapped.shape if type is None else shape_of(type)
        if type is not None:
            wrapped = wrapped.declared(shape)
        if shape.kind == "any":
            raise GraphError(f"source {name!r}: type={type!r} is not Row, dict, a dataclass or a msgspec.Struct")
        if shape.kind in ("row", "dict"):
            shape = replace(shape, fields=wrapped.fields())
        elif shape.kind == "scalar" and type is not None:
            shape = replace(shape, column=single_column(name, shape, wrapped.fields()))
        return Stream(self, Port(self.graph.add(name, SourceOperator(wrapped, shape)).id))

    def dead_letter(self, name: str, sink: Sink) -> None:
        """Send records for which a function of the program fails to a sink, instead of stopping the job.

        The sink receives the step, key, record (as JSON), error and the traceback of the program's own code as
        text, in the same commit as the rest of the batch. The state of the record's key does not change.

        - `name`: the name of the sink, unique in the job.
        - `sink`: one of `tidewheel.sinks`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("inverse")
        >>> job.dead_letter("dead", sinks.collect())
        >>> _ = job.source("in", sources.iterable([4, 0])).map("inverse", lambda n: 1 / n).sink("out", sinks.collect())
        >>> outputs = run_in_memory(job).outputs
        >>> outputs["out"], outputs["dead"][0]["step"], outputs["dead"][0]["record"]
        ([{'value': 0.25}], 'inverse', '0')
        """
        if self._dead_letter is not None:
            raise GraphError(f"there is a dead-letter sink already, {self.graph.nodes[self._dead_letter].name!r}")
        if not isinstance(sink, Sink):
            raise GraphError(f"dead letter {name!r}: {sink!r} is not a sink; see tidewheel.sinks")
        try:
            unkeyed = sink.keyed_by(None)
        except ConfigError as error:
            raise GraphError(f"dead letter {name!r}: {error}") from None
        self._dead_letter = self.graph.add(name, SinkOperator(unkeyed)).id

    def alias(self, name: str, *former: str) -> None:
        """Declare former names of a step. At the next start, the step takes over their state, or a source their offsets.

        - `name`: the current name of the step or source.
        - `former`: its former names.

        >>> from tidewheel import Job
        >>> Job("renamed").alias("total", "sum")
        """
        if former:
            self.aliases[name] = (*self.aliases.get(name, ()), *former)

    def plan(self) -> Plan:
        """Check the graph and return it divided into levels."""
        self.graph.check()
        check_lateness(self.graph)
        self._check_aliases()
        self._check_dead_letters()
        plan = make_plan(self.name, self.graph, self._dead_letter, self.declared_cells)
        check_joins(plan, declared_kinds(plan), GraphError)
        return plan

    def _check_dead_letters(self) -> None:
        needing = [node.name for node in self.graph.nodes if node.operator.needs_dead_letters]
        if needing and self._dead_letter is None:
            raise GraphError(
                f"step {needing[0]!r}: otherwise='dead' needs a sink for dead letters: job.dead_letter(name, sink)"
            )

    def _check_aliases(self) -> None:
        names = [node.name for node in self.graph.nodes]
        for name, former in self.aliases.items():
            if name not in names:
                line = f"job.alias({', '.join(map(repr, (name, *former)))})"
                present = next((old for old in former if old in names), None)
                if present is not None:
                    raise GraphError(
                        f"{line}: the other way round? {present!r} is in the program: the present name comes first, "
                        f"job.alias({present!r}, {name!r})"
                    )
                near = get_close_matches(name, names, 1)
                raise GraphError(
                    f"{line}: the program has no step or source {name!r}; the present name comes first"
                    + (f": did you mean {near[0]!r}?" if near else "")
                )

    @property
    def declared_cells(self) -> tuple[JobCell[Any], ...]:
        """The cells that the program declares, in the order of declaration."""
        return tuple(self._cells.values())

    @property
    def cells_url(self) -> str:
        """The URL of the job's cells."""
        return cells_of(JobPlace(self.name, self.state, self.cells_at))

    @overload
    def cell(self, name: str, declared: type[V], *, default: None = None) -> JobCell[V | None]: ...
    # If no overload fits, mypy reports the first near match: the overload whose type variable names the mistake.
    @overload
    def cell(self, name: str, declared: type[TypeOfDefault], *, default: TypeOfDefault) -> JobCell[TypeOfDefault]: ...
    @overload
    def cell(self, name: str, declared: type[list[V]], *, default: Sequence[V]) -> JobCell[list[V]]: ...
    @overload
    def cell(self, name: str, declared: type[dict[K, V]], *, default: Mapping[K, V]) -> JobCell[dict[K, V]]: ...
    @overload
    def cell(self, name: str, declared: type[set[V]], *, default: Set[V]) -> JobCell[set[V]]: ...
    @overload
    def cell(self, name: str, declared: type[Record], *, default: Record) -> JobCell[Record]: ...
    @overload
    def cell(self, name: str, declared: UnionType, *, default: Any = None) -> JobCell[Any]: ...
    def cell(self, name: str, declared: Any = None, *positional: Any, default: Any = None) -> JobCell[Any]:
        """Declare live configuration: a cell whose `value` steps can read. All records of a batch see the same value.

        Change the cell while the job runs with `tidewheel cells set NAME VALUE --job JOB`, or from Python with
        `StoredJob.cell`. The manifest of each batch records the version that the batch used.

        - `name`: the name of the cell, unique in the job.
        - `declared`: the type of its values.
        - `default`: the value, given by name, until somebody writes the cell; it must match the type. Without it the
          value is None.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("limited")
        >>> limit = job.cell("limit", int, default=100)
        >>> numbers = job.source("in", sources.iterable([90, 250]))
        >>> _ = numbers.filter("small", lambda n: n < limit.value).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'value': 90}]
        """
        if positional:
            raise GraphError(f"cell {name!r}: its default is given by name: default={positional[0]!r:.200}")
        if name in self._cells:
            raise GraphError(f"there is a cell named {name!r} already")
        self._cells[name] = JobCell(name, declared, default)
        return self._cells[name]

    def table(
        self,
        name: str,
        source: TableSource | str | os.PathLike[str] | Callable[..., Any] | Any,
        *,
        key: str | Sequence[str],
        refresh: Duration | Literal["batch"] | None = None,
    ) -> Table:
        """Declare a reference table, such as prices or customers, for `stream.lookup`.

        The driver loads the whole table, stores it next to the state and commits its version: all records of a batch
        use the same version, and a batch that is tried again or replayed uses it again. A table that is replaced takes
        effect with the first batch after its refresh, and rows that were deleted are gone. The job stops if the table
        cannot be loaded at first, or has two rows with the same key. If a later refresh cannot load it, the job continues
        with the version that it has, and warns.

        - `name`: the name of the table, unique in the job.
        - `source`: the path or URL of a Parquet or CSV file or folder, or of a Delta table; one of `tidewheel.tables`;
          a DataFrame of Spark, pandas or Polars, an Arrow table, or a list of records; or a function without arguments,
          or of the Spark session, that returns one of these.
        - `key`: the column that identifies a row, or several: text, integers or bytes.
        - `refresh`: load the table again before a batch if this time has passed, such as "10 minutes"; "batch" before
          each batch. Files and Delta tables that have not changed are not read again. None: at each start of the job.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("countries")
        >>> users = job.table("users", [{"user": "ada", "country": "GB"}], key="user")
        >>> clicks = job.source("in", sources.iterable([{"user": "ada"}, {"user": "eve"}]))
        >>> _ = clicks.lookup("country", users, on="user").sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'user': 'ada', 'country': 'GB'}]
        """
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise GraphError(f"a table's name has letters, digits, '_', '-' and '.'; {name!r} does not fit")
        if name in self.declared_tables:
            raise GraphError(f"there is a table named {name!r} already")
        columns = (key,) if isinstance(key, str) else tuple(key)
        if not columns or not all(isinstance(column, str) for column in columns):
            raise GraphError(f"table {name!r}: key= is the name of a column, or a list of names, not {key!r}")
        every = None if refresh is None else 0
        if refresh not in (None, "batch"):
            every = nanoseconds(refresh, f"table {name!r}: refresh=", least=1)
        table = self.declared_tables[name] = Table(name, as_table_source(name, source), columns, every)
        return table

    def rescale(self, parallelism: int | None) -> None:
        """Change the number of tasks from the next batch on, wherever the job runs. No state is rewritten.

        - `parallelism`: the number of tasks, 1 to `n_shards`. It stays in effect until the next change, also across
          restarts. None removes the setting: each run uses its own `parallelism` again.

        >>> from tidewheel import Job
        >>> Job("wider", state="memory:wider").rescale(8)
        """
        if parallelism is not None and not 1 <= parallelism <= self.n_shards:
            raise GraphError(
                f"the parallelism of job {self.name!r} is between 1 and its {self.n_shards} shards, not {parallelism}"
            )
        rescale(self.cells_url, parallelism)

    def query(self, step: str, key: Any) -> Found:
        """Look up the committed state of one key, whether the job runs or not.

        The answer has `found`, the `value` in the type that the program declares, and the `sequence` of its checkpoint.

        - `step`: the name of a step with state.
        - `key`: the key.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("queried", state="memory:queried")
        >>> numbers = job.source("in", sources.iterable([3, 4])).key_by("by-parity", lambda n: n % 2)
        >>> _ = numbers.reduce("largest", max).sink("out", sinks.collect())
        >>> _ = run_in_memory(job, state="memory:queried")
        >>> job.query("largest", 1).value
        3
        """
        return self._lookup().get(step, key)

    def import_state(
        self,
        step: str,
        rows: Any,
        *,
        key: str = "key",
        value: str | None = None,
        key_type: type | str | None = None,
    ) -> int:
        """Import the state of a step before the job's first batch; return the number of imported keys.

        - `step`: the name of the step.
        - `rows`: the path of a Parquet, CSV or JSON lines file, or of a folder of such files; a DataFrame; or pairs of
          key and state. If `value` is the only column besides the key, it is the state; otherwise the state is a record
          of all other columns. The first line of a CSV file names its columns; values are read as the types that the
          step declares.
        - `key`: the column that holds the keys.
        - `value`: the column that holds the whole state, under any name; other columns are then ignored.
        - `key_type`: the type of the keys (`str`, `int`, …), if the program does not declare it at `key_by`. Keys of
          another type are rejected. Keys in a CSV file are text by default, and rejected if all of them look like
          numbers.

        >>> from tidewheel import Job, sinks, sources
        >>> job = Job("imported", state="memory:imported")
        >>> numbers = job.source("in", sources.iterable([3, 4])).key_by("by-parity", lambda n: n % 2)
        >>> _ = numbers.reduce("largest", max).sink("out", sinks.collect())
        >>> job.import_state("largest", [(0, 100), (1, 99)]), job.query("largest", 0).value
        (2, 100)
        """
        from tidewheel._imports.import_state import import_state

        return import_state(self, step, rows, key=key, value=value, key_type=key_type).keys

    def _lookup(self) -> Lookup:
        from tidewheel._engine.lookup import Lookup

        if self._opened_lookup is None or self._opened_lookup.state != self.state:
            self._opened_lookup = Lookup(self.name, self.state, self.graph)
        return self._opened_lookup

    def run(
        self,
        *,
        until: Until | None = None,
        every: Duration | None = None,
        parallelism: Parallelism | None = None,
        state: str | None = None,
        options: RunOptions | None = None,
        **old: Unpack[OldArguments],
    ) -> RunResult:
        """Run the job on Spark until it ends.

        - `until`: "caught-up" reads all available data, emits what is due by event time, and ends; a later run can
          continue. "end" reads all available data, closes every window, and ends the job permanently. None runs until
          stopped.
        - `every`: the interval between batches, such as "5 seconds". None begins a batch as soon as data arrives.
        - `parallelism`: the number of tasks, 1 to `n_shards`; it may differ between runs. None uses one task per core,
          "auto" as many as the load needs.
        - `state`: the state URL, instead of the URL in `Job(state=…)`.
        - `options`: all other options, such as `RunOptions(restarts=5)` or `RunOptions.load(profile="staging")`. The
          arguments above take precedence over the same options there.
        - `old`: arguments of version 0.1, which are options now. They work in this version, with a warning.

        >>> import tempfile
        >>> from tidewheel import Job, sinks, sources
        >>> job, out = Job("squares", state=tempfile.mkdtemp()), sinks.collect()
        >>> _ = job.source("in", sources.iterable([1, 2, 3])).map("square", lambda n: n * n).sink("out", out)
        >>> result = job.run(until="end", parallelism=1)
        >>> result.event_count, out.records
        (3, [{'value': 1}, {'value': 4}, {'value': 9}])
        """
        from tidewheel._program.running import chosen_options, in_this_thread, run_on_spark

        chosen = chosen_options("run", options, old, until=until, every=every, parallelism=parallelism, state=state)
        return in_this_thread(run_on_spark(self, chosen))

    def switch(
        self,
        accept: Callable[[Switching], bool],
        *,
        last: int = 1,
        until: Until | None = None,
        parallelism: Parallelism | None = None,
        state: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Replace the program of the running job of this name by this one, and run it until it ends.

        This program follows the running one on a fork, on Spark, from the state before its `last` batches, and
        publishes nothing. When it has caught up, `accept` gets the differences of state and numbers of rows. If it
        returns True, this program takes the job over between two commits and publishes from the next one on. The other
        run ends, with a `FencedError` if it was at a batch. If `accept` returns False, the switch raises a
        `ConfigError`, and the other run continues.

        - `accept`: gets a `Switching` and decides whether this program takes over.
        - `last`: how many batches before the newest commit this program begins.
        - `until`, `parallelism`, `state`, `options`: as for `run`.
        """
        from tidewheel._program.running import SwitchTerms, chosen_options, in_this_thread, run_on_spark

        chosen = chosen_options("switch", options, {}, until=until, parallelism=parallelism, state=state)
        return in_this_thread(run_on_spark(self, chosen, SwitchTerms(last, accept)))

    def standby(
        self,
        *,
        parallelism: Parallelism | None = None,
        state: str | None = None,
        options: RunOptions | None = None,
    ) -> RunResult:
        """Run a standby: wait, ready to work, until the job's current run is gone, then take over the job and run it.

        Meanwhile Spark runs, the program is loaded, and local copies of the state follow the commits. A run is gone if it
        ended, or if its process does not renew its lease (`RunOptions(lease="5 s")`). A run that was only paused is fenced
        and commits nothing more. If no run has the job, this one takes it at once. If somebody stops the job by
        `tidewheel stop` or `StoredJob.stop`, the standby ends too.

        - `parallelism`, `state`, `options`: as for `run`.
        """
        from tidewheel._program.running import chosen_options, in_this_thread, run_on_spark

        chosen = chosen_options("standby", options, {}, parallelism=parallelism, state=state)
        return in_this_thread(run_on_spark(self, chosen, takes_over="on loss"))

    def start(
        self,
        *,
        until: Until | None = None,
        every: Duration | None = None,
        parallelism: Parallelism | None = None,
        state: str | None = None,
        options: RunOptions | None = None,
        **old: Unpack[OldArguments],
    ) -> Run:
        """Start the job on Spark in the background and return a handle at once.

        `run` does the same and then waits, except that `run` handles Ctrl-C and `start` leaves signals to the program.
        Several jobs can run in one process at the same time; they share its Spark session.

        - `until`, `every`, `parallelism`, `state`, `options`, `old`: the arguments of `run`.

        >>> import tempfile
        >>> from tidewheel import Job, sinks, sources
        >>> job, out = Job("doubles", state=tempfile.mkdtemp()), sinks.collect()
        >>> _ = job.source("in", sources.iterable([1, 2, 3])).map("double", lambda n: 2 * n).sink("out", out)
        >>> with job.start(until="end", parallelism=1) as run:
        ...     print(run.wait().event_count)
        3
        """
        from tidewheel._program.running import chosen_options, in_background, run_on_spark

        chosen = chosen_options("start", options, old, until=until, every=every, parallelism=parallelism, state=state)
        return in_background(run_on_spark(self, chosen))
