"""import_state: a step's state from a table, before the job's first batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tidewheel._checkpoint.tools.exact_rows import EXACT, exact_of, plain_key, rows_of
from tidewheel._core.pandas_warning import ignore_pandas_warning
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.program_job import ProgramJob
from tidewheel._imports.columns import StateColumns, check_columns
from tidewheel._imports.imported_step import ImportedStep, commit_import, key_twice
from tidewheel._imports.keys import ImportedKeys
from tidewheel._imports.text import CsvRows, JsonRows, TextRows, text_format
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._values.shape import DICT, VALUE
from tidewheel.errors import ConfigError, StateError, StepError

Rows = Any
"""A path of Parquet, CSV or JSON lines, an Arrow table, a Spark DataFrame, or pairs of key and value."""

_Columns = tuple[pa.Schema, Iterable[pa.RecordBatch]]
_Check = Callable[[Mapping[str, pa.DataType | None], str], None]
"""Refuses columns that do not fit; the second argument names the file or table."""
_ROWS = 8192


class Imported(NamedTuple):
    """How many keys were imported, and whether they were read as text because their type is unknown."""

    keys: int
    taken_for_text: bool = False


def import_state(
    job: ProgramJob,
    operator: str,
    rows: Rows,
    *,
    key: str = "key",
    value: str | None = None,
    key_type: type | str | None = None,
) -> Imported:
    """Give a step its state, as one commit, before the job's first batch.

    `rows` is the path of a Parquet file, a CSV file or one of JSON lines, or of a folder of such files, an Arrow table or a
    Spark DataFrame with the column `key`. The state is the column that `value` names, and others are left out; if it names
    none, the column called `value` if that is the only other one, else a record of the others, as the step's type declares
    it. Pairs of key and value work too. State of an earlier import is replaced key by key. A value that does not match the
    declared type, or the type of the default, is refused.

    `key_type` is the type of the keys; by default the type that the program declares for its `key_by`. Keys of another type
    are refused. If no type is declared, keys of a CSV file are text; if all of them look like numbers, `key_type` is
    required. The job's batches must have keys of the imported type.

    Rows are read one after the other and sorted on local disk, in the system's temporary folder, so memory does not depend
    on their number.
    """
    plan = job.plan()
    step, columns = ImportedStep(plan, operator, job.n_shards, key_type), StateColumns(key, value)
    if _format(rows) == "csv":
        step.expect_record()
    keys, expected = step.keys, step.expected

    def check(fields: Mapping[str, pa.DataType | None], where: str) -> None:
        check_columns(operator, expected, fields, key, where)

    text = _text_rows(rows, columns, keys, check, None if step.spec.codec else expected)
    with SortedRuns(key_twice) as entries:
        for name, content in _pairs(rows, columns, check) if text is None else text:
            try:
                step.add(entries, name, content)
            except (StateError, StepError) as error:
                raise error if text is None else StateError(f"{text.place}: {error}") from None
        if isinstance(text, CsvRows) and text.numbers_only is not None:
            raise StateError(
                f"the keys in {text.path} look like numbers ({text.numbers_only}), and the program does not declare their type: "
                f"7 and '7' are different keys. {keys.how_to_tell()}"
            )
        commit_import(JobRun(job, plan), [step], entries)
    return Imported(step.count, isinstance(text, CsvRows) and keys.type is None)


def _text_rows(rows: Rows, columns: StateColumns, keys: ImportedKeys, check: _Check, expected: Any) -> TextRows | None:
    """Return the rows of CSV files or JSON lines; None: it is something else."""
    match _format(rows):
        case "csv":
            return CsvRows(os.fspath(rows), columns, keys, check, expected)
        case "json":
            return JsonRows(os.fspath(rows), columns, keys, check)
        case _:
            return None


def _format(rows: Rows) -> str | None:
    return text_format(os.fspath(rows)) if isinstance(rows, str | os.PathLike) else None


def _pairs(rows: Rows, columns: StateColumns, check: _Check) -> Iterable[tuple[Any, Any]]:
    if isinstance(rows, str | os.PathLike):
        return _of_batches(_of_parquet(os.fspath(rows)), columns, check, os.fspath(rows))
    if hasattr(rows, "toArrow"):
        return _of_batches(frame_columns(rows), columns, check, "the DataFrame")
    if isinstance(rows, pa.Table):
        return _of_batches((rows.schema, rows.to_batches()), columns, check, "the table")
    pairs: Iterable[tuple[Any, Any]] = rows
    return pairs


def _of_parquet(path: str) -> _Columns:
    from pyarrow import dataset

    def batches() -> Iterator[pa.RecordBatch]:
        with _naming(path):
            # Read one file after the other, and little ahead of the consumer.
            yield from found.to_batches(batch_size=_ROWS, batch_readahead=1, fragment_readahead=1)

    with _naming(path):
        found = dataset.dataset(path, format="parquet", partitioning="hive")
    return found.schema, batches()


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise ConfigError(
            f"could not read {path} as Parquet: {error}; state is imported from Parquet, CSV (.csv, .tsv) and JSON lines "
            "(.json, .jsonl, .ndjson)"
        ) from None


def frame_columns(frame: Any) -> _Columns:
    """Read a frame as `toArrow` does, but a partition at a time: the driver never has it whole."""

    # A function inside a function travels by value: workers may not have this package.
    def serialized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([out.getvalue().to_pybytes()], pa.binary())], names=["batch"])

    schema = frame.limit(0).toArrow().schema
    ignore_pandas_warning()
    streams = (bytes(row[0]) for row in frame.mapInArrow(serialized, "batch binary").toLocalIterator())
    batches = (
        pa.Table.from_batches([batch]).cast(schema) for stream in streams for batch in pa.ipc.open_stream(stream)
    )
    return schema, (batch for table in batches for batch in table.to_batches())


def _of_batches(table: _Columns, columns: StateColumns, check: _Check, where: str) -> Iterator[tuple[Any, Any]]:
    schema, batches = table
    fields = columns.fields([name for name in schema.names if name != EXACT], where)
    named = where if columns.value is None else f"{where}, where {VALUE!r} is the column {columns.value!r}"
    check({name: schema.field(column).type for column, name in fields.items()}, named)
    for batch in batches:
        keys = map(plain_key, batch.column(columns.key).to_pylist())
        values = DICT.values(batch.select(list(fields)).rename_columns(list(fields.values())))
        if list(fields.values()) == [VALUE]:
            values = [value[VALUE] for value in values]
        pairs = zip(keys, values, strict=True)
        yield from pairs if EXACT not in schema.names or columns.value is not None else _exact(batch, pairs)


def _exact(batch: pa.RecordBatch, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield the key and the state of each row, of exact rows as they were when they were exported."""
    cells = batch.column(EXACT).to_pylist()
    for cell, row, pair in zip(cells, rows_of(batch.drop_columns([EXACT])), pairs, strict=True):
        yield exact_of(cell, row) or pair
