"""import_state: an operator's state from a table, before the job's first batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.evolve import state_of
from tidewheel._engine.plan import Plan
from tidewheel._engine.run import JobRun
from tidewheel._operators.keyed.stateful_map import StateSpec
from tidewheel._values.shape import DICT, VALUE
from tidewheel.errors import ConfigError, GraphError, StateError

if TYPE_CHECKING:
    from tidewheel._program.job import Job

Rows = Any
"""A Parquet file's path, an Arrow table, a Spark DataFrame, or pairs of key and value."""


def import_state(job: Job, operator: str, rows: Rows, *, key: str = "key") -> int:
    """Give an operator its state, as one commit, before the job's first batch; return the number of keys.

    `rows` is the path of a Parquet file, an Arrow table or a Spark DataFrame with the column `key`; the value is the column
    `value` if that is the only other one, else a record of the others, as the operator's type declares it. Pairs of key and
    value do as well. State that the operator has from an earlier import is replaced key by key.
    """
    plan = job.plan()
    spec = _spec(plan, operator)
    codec = spec.resolved_codec()
    shards: dict[int, dict[bytes, bytes | None]] = {}
    count = 0
    for name, value in _pairs(rows, key):
        stored = to_stored(name)
        items = shards.setdefault(shard_of_stored(stored, job.n_shards), {})
        if stored in items:
            raise StateError(f"the key {name!r} comes twice in what is imported into {operator!r}; keep one of the two")
        items[stored] = codec.encode(_converted(value, spec, name, operator))
        count += 1
    run = JobRun(job, plan)
    try:
        run.begin()
        if run.head.batch is not None:
            raise StateError(
                f"job {job.name!r} has had batches up to {run.head.batch}: state is imported before the first one. Import into a "
                "job of another name, or under another state URL"
            )
        files = DeltaFiles(run)
        for shard, items in sorted(shards.items()):
            files.add(shard, operator, list(items.items()))
        operators = {**run.head.operators, operator: operator_infos(run.plan)[operator]}
        run.commit(run.spec(run.head.parallelism, ""), files.finish(), "import", None, operators=operators)
    finally:
        run.release()
    return count


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


def _pairs(rows: Rows, key: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(rows, str | os.PathLike):
        from pyarrow import parquet

        try:
            rows = parquet.read_table(rows)
        except (OSError, pa.ArrowInvalid) as error:
            raise ConfigError(f"could not read {os.fspath(rows)} as Parquet: {error}") from None
    elif hasattr(rows, "toArrow"):
        rows = rows.toArrow()
    return _of_table(rows, key) if isinstance(rows, pa.Table) else rows


def _of_table(table: pa.Table, key: str) -> Iterator[tuple[Any, Any]]:
    if key not in table.schema.names:
        raise ConfigError(f"there is no column {key!r} for the key; the columns are {', '.join(table.schema.names)}")
    others = [name for name in table.schema.names if name != key]
    for batch in table.to_batches():
        keys = map(_key, batch.column(batch.schema.get_field_index(key)).to_pylist())
        values = DICT.values(batch.select(others))
        if others == [VALUE]:
            values = [value[VALUE] for value in values]
        yield from zip(keys, values, strict=True)


def _key(key: Any) -> Any:
    """Make a struct the tuple that it was exported from."""
    return tuple(map(_key, key.values())) if isinstance(key, dict) else key


def _converted(value: Any, spec: StateSpec, key: Any, operator: str) -> Any:
    if spec.type is None or spec.codec is not None:
        return value
    try:
        return msgspec.convert(value, spec.type)
    except msgspec.ValidationError as error:
        raise StateError(f"the state of key {key!r} does not fit what {operator!r} declares: {error}") from None
