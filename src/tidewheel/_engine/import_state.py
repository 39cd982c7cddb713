"""import_state: an operator's state from a table, before the job's first batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.evolve import state_of
from tidewheel._engine.import_columns import check_columns, expected_type
from tidewheel._engine.plan import Plan
from tidewheel._engine.run import JobRun
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._values.shape import DICT, VALUE
from tidewheel.errors import ConfigError, GraphError, StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidewheel._program.job import Job

Rows = Any
"""A Parquet file's path, an Arrow table, a Spark DataFrame, or pairs of key and value."""

_Columns = tuple[pa.Schema, Iterable[pa.RecordBatch]]
_Check = Callable[[pa.Schema, str], None]
"""Refuses columns that do not fit; told what they are of."""
_ROWS = 8192


def import_state(job: Job, operator: str, rows: Rows, *, key: str = "key") -> int:
    """Give an operator its state, as one commit, before the job's first batch; return the number of keys.

    `rows` is the path of a Parquet file, an Arrow table or a Spark DataFrame with the column `key`; the value is the column
    `value` if that is the only other one, else a record of the others, as the operator's type declares it. Pairs of key and
    value do as well. State that the operator has from an earlier import is replaced key by key. What does not fit the
    declared type, or the type of the default, is refused.

    Rows are taken one after the other and sorted on local disk, in the system's temporary folder: memory does not follow
    their number.
    """
    plan = job.plan()
    spec = _spec(plan, operator)
    codec, expected = spec.resolved_codec(), expected_type(spec)

    def check(schema: pa.Schema, where: str) -> None:
        check_columns(operator, expected, schema, key, where)

    def twice(stored: bytes) -> StateError:
        return StateError(
            f"the key {from_stored(stored)!r} comes twice in what is imported into {operator!r}; keep one of the two"
        )

    count = 0
    with SortedRuns(twice) as entries:
        for name, value in _pairs(rows, key, check):
            stored = to_stored(name)
            state = codec.encode(_converted(value, None if spec.codec else expected, name, operator))
            entries.add(shard_of_stored(stored, job.n_shards), operator, stored, state)
            count += 1
        _commit(JobRun(job, plan), operator, entries)
    return count


def _commit(run: JobRun, operator: str, entries: SortedRuns) -> None:
    try:
        run.begin()
        if run.head.batch is not None:
            raise StateError(
                f"job {run.job.name!r} has had batches up to {run.head.batch}: state is imported before the first one. Import "
                "into a job of another name, or under another state URL"
            )
        files = DeltaFiles(run.store, run.head, run.token)
        for shard in entries.shards():
            for table, items in entries.tables(shard):
                files.add(shard, table, items)
        operators = {**run.head.operators, operator: operator_infos(run.plan)[operator]}
        run.commit(run.spec(run.head.parallelism, ""), files.reports(), "import", None, operators=operators)
    finally:
        run.release()


def _spec(plan: Plan, operator: str) -> StateSpec:
    specs = {node.name: state_of(node) for node in plan.nodes}
    spec = specs.get(operator)
    if spec is None:
        able = ", ".join(repr(name) for name, found in specs.items() if found is not None)
        raise GraphError(
            f"state cannot be imported into {operator!r}: it goes into a stateful_map, stateful_op or reduce; there are "
            f"{able or 'none'}"
        )
    return spec


def _pairs(rows: Rows, key: str, check: _Check) -> Iterable[tuple[Any, Any]]:
    if isinstance(rows, str | os.PathLike):
        return _of_batches(_of_parquet(os.fspath(rows)), key, check, os.fspath(rows))
    if hasattr(rows, "toArrow"):
        return _of_batches(_of_frame(rows), key, check, "the DataFrame")
    if isinstance(rows, pa.Table):
        return _of_batches((rows.schema, rows.to_batches()), key, check, "the table")
    pairs: Iterable[tuple[Any, Any]] = rows
    return pairs


def _of_parquet(path: str) -> _Columns:
    from pyarrow import dataset

    def batches() -> Iterator[pa.RecordBatch]:
        with _told(path):
            # One file after the other, and little of it ahead of what is taken.
            yield from found.to_batches(batch_size=_ROWS, batch_readahead=1, fragment_readahead=1)

    with _told(path):
        found = dataset.dataset(path, format="parquet", partitioning="hive")
    return found.schema, batches()


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (OSError, pa.ArrowInvalid) as error:
        base, extension = os.path.splitext(path)
        if extension.lower() == ".csv":
            raise ConfigError(
                f"{path} is a CSV file, and state is imported from Parquet, which has types. Make one of it: "
                'python -c "from pyarrow import csv, parquet; '
                f'parquet.write_table(csv.read_csv({path!r}), {base + ".parquet"!r})"; '
                "what looks like a number becomes one unless you give convert_options="
            ) from None
        raise ConfigError(f"could not read {path} as Parquet: {error}") from None


def _of_frame(frame: DataFrame) -> _Columns:
    """Read a frame as `toArrow` does, but a partition at a time: the driver never has it whole."""

    # A function inside a function travels by value: workers may not have this package.
    def serialized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([out.getvalue().to_pybytes()], pa.binary())], names=["batch"])

    schema = frame.limit(0).toArrow().schema
    streams = (bytes(row[0]) for row in frame.mapInArrow(serialized, "batch binary").toLocalIterator())
    batches = (
        pa.Table.from_batches([batch]).cast(schema) for stream in streams for batch in pa.ipc.open_stream(stream)
    )
    return schema, (batch for table in batches for batch in table.to_batches())


def _of_batches(columns: _Columns, key: str, check: _Check, where: str) -> Iterator[tuple[Any, Any]]:
    schema, batches = columns
    if key not in schema.names:
        raise ConfigError(
            f"there is no column {key!r} for the keys in {where}; the columns are {', '.join(schema.names)}. Name the one with "
            "the keys (key=…, --key …); what is beside it is the state: one column called 'value', or a column for each field"
        )
    check(schema, where)
    others = [name for name in schema.names if name != key]
    for batch in batches:
        keys = map(_key, batch.column(key).to_pylist())
        values = DICT.values(batch.select(others))
        if others == [VALUE]:
            values = [value[VALUE] for value in values]
        yield from zip(keys, values, strict=True)


def _key(key: Any) -> Any:
    """Make a struct the tuple that it was exported from."""
    return tuple(map(_key, key.values())) if isinstance(key, dict) else key


def _converted(value: Any, expected: Any, key: Any, operator: str) -> Any:
    if expected is None:
        return value
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        raise StateError(
            f"the state of key {key!r} does not fit what {operator!r} declares (state=, or the type of default=): {error}"
        ) from None
