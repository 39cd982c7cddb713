"""The state of a Spark query, through Spark's `statestore` reader: its operators, and the state of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructField, StructType

from tidewheel._imports.import_state import frame_columns
from tidewheel._imports.migration import SparkState
from tidewheel._state.timers import Clock
from tidewheel.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRANSFORM = "transformWithState"
_GROUPS = ("applyInPandasWithState", "flatMapGroupsWithState")
_SEEN = "dedupe"
_PLAIN = ("stateStoreSave", _SEEN, "dedupeWithinWatermark")
_MS = 1_000_000
_TTL, _TIMERS = "ttlExpirationMs", "expiration_timestamp_ms"
_NEVER = -1
"""The timeout of a key without one."""


class SparkOperator(NamedTuple):
    """A stateful operator of a query."""

    number: int
    name: str
    variables: tuple[str, ...]
    """The state variables of `transformWithState`."""
    clock: Clock
    """The clock of its timers."""
    partitions: int

    @property
    def refusal(self) -> str | None:
        """Why the operator cannot be migrated and what to do; None if it can."""
        if self.name.startswith(_TRANSFORM) or self.name in (*_GROUPS, *_PLAIN):
            return None
        return (
            f"operator {self.number} ({self.name}) cannot be migrated: only transformWithState, applyInPandasWithState, "
            f"aggregations and deduplications can. Leave its state behind with --without-operator {self.number}: its step begins "
            "without state"
        )


def operators(spark: SparkSession, checkpoint: str) -> list[SparkOperator]:
    """Return the stateful operators of a query, in the order of their numbers."""
    frame = spark.read.format("state-metadata").load(checkpoint)
    rows = frame.select("operatorId", "operatorName", "numPartitions", "operatorProperties").collect()
    found = []
    # A join has several stores, each with a row.
    for number, name, partitions, properties in sorted({tuple(row) for row in rows}):
        about = json.loads(properties) if properties else {}
        variables = tuple(each["stateName"] for each in about.get("stateVariables", ()))
        own = tuple(each for each in variables if not each.startswith("$"))
        wall = "processing" in str(about.get("timeMode", "processing")).lower()
        found.append(SparkOperator(number, name, own, "wall" if wall else "event", partitions))
    return found


def states(spark: SparkSession, checkpoint: str, operator: SparkOperator, batch: int, now: int) -> Iterator[SparkState]:
    """Give the state of each key after a batch. Values whose TTL has expired at `now`, in ns, are left out."""
    if operator.refusal is not None:
        raise StateError(operator.refusal)
    # Rows arrive partition by partition, each with a Spark job of its own: no more of them than the query had.
    spark.conf.set("spark.sql.shuffle.partitions", str(operator.partitions))
    # For each row, Spark adds up the sizes of all rows that its Arrow batch has so far.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    reader = _Reader(spark, checkpoint, operator, batch)
    frame = reader.by_key()
    _check_key(frame.schema["key"].dataType, operator)
    for part in frame_columns(frame)[1]:
        for row in part.to_pylist():
            yield reader.state(row, now)


class _Reader:
    def __init__(self, spark: SparkSession, checkpoint: str, operator: SparkOperator, batch: int) -> None:
        self._spark, self._checkpoint, self._operator, self._batch = spark, checkpoint, operator, batch
        self._ttl: set[str] = set()
        """The variables with a TTL."""

    def by_key(self) -> DataFrame:
        """Return one row for each key: the key, and a column for each value or variable."""
        if not self._operator.name.startswith(_TRANSFORM):
            frame = self._load()
            value = frame.schema["value"].dataType
            assert isinstance(value, StructType)
            return frame.select("key", F.col("value").cast(_distinct_names(value)).alias("value"))
        frames = [self._variable(name) for name in self._operator.variables]
        frames.append(self._timers())
        whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
        columns = [name for name in whole.columns if name != "key"]
        return whole.groupBy("key").agg(*(F.first(name, ignorenulls=True).alias(name) for name in columns))

    def _load(self, **options: Any) -> DataFrame:
        reader = self._spark.read.format("statestore").option("batchId", self._batch)
        reader = reader.option("operatorId", self._operator.number).options(**options)
        return reader.load(self._checkpoint)

    def _variable(self, name: str) -> DataFrame:
        frame = self._load(stateVarName=name, flattenCollectionTypes=False)
        (column,) = (each for each in frame.columns if each not in ("key", "partition_id"))
        if _has_ttl(frame.schema[column].dataType):
            self._ttl.add(name)
        return frame.select("key", F.col(column).alias(_escaped(name)))

    def _timers(self) -> DataFrame:
        frame = self._load(readRegisteredTimers=True)
        return frame.groupBy("key").agg(F.sort_array(F.collect_list(_TIMERS)).alias(_TIMERS))

    def state(self, row: dict[str, Any], now: int) -> SparkState:
        """Return the state of a key from its row."""
        key = _key(row["key"])
        if self._operator.name.startswith(_TRANSFORM):
            return self._variables(key, row, now)
        value = dict(row["value"] or {})
        if self._operator.name in _GROUPS:
            timeout = value.pop("timeoutTimestamp", None)
            value = value.get("groupState", value) or {}
            timers = () if timeout is None or timeout == _NEVER else (timeout * _MS,)
            return SparkState(key, value, timers)
        # Spark stores an empty value for a key that `dropDuplicates` has seen.
        return SparkState(key, {"seen": True} if self._operator.name == _SEEN else value)

    def _variables(self, key: Any, row: dict[str, Any], now: int) -> SparkState:
        values: dict[str, Any] = {}
        expires: dict[str, Any] = {}
        for name in self._operator.variables:
            found = row[_escaped(name)]
            if found is None:
                continue
            if name not in self._ttl:
                values[name] = _plain(found)
                continue
            found, times = unexpired(found, now // _MS)
            expires[name] = times
            if found is not None:
                values[name] = found
        return SparkState(key, values, tuple(each * _MS for each in row[_TIMERS] or ()), expires)


def _escaped(name: str) -> str:
    return f"value_of_{name}"


def _key(row: dict[str, Any]) -> Any:
    fields = tuple(row.values())
    return fields[0] if len(fields) == 1 else fields


def _plain(found: Any) -> Any:
    """Return a value, a list or a map of rows with plain values instead of rows with one field."""
    if isinstance(found, dict):
        return next(iter(found.values())) if len(found) == 1 else found
    if isinstance(found, list):
        pairs = found and isinstance(found[0], tuple)
        return {_key(key): _plain(value) for key, value in found} if pairs else [_plain(each) for each in found]
    return found


def unexpired(found: Any, now_ms: int) -> tuple[Any, Any]:
    """Return the part of a variable with a TTL that has not expired (None: nothing), and when it expires, in ns."""
    if isinstance(found, dict):
        at = found[_TTL]
        return (_plain(found["value"]) if at > now_ms else None), at * _MS
    if found and isinstance(found[0], tuple):
        left = [(_key(key), each) for key, each in found if each[_TTL] > now_ms]
        values = {key: _plain(each["value"]) for key, each in left}
        return values or None, {key: each[_TTL] * _MS for key, each in left}
    rows = [each for each in found if each[_TTL] > now_ms]
    return [_plain(each["value"]) for each in rows] or None, [each[_TTL] * _MS for each in rows]


def _has_ttl(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_ttl(kind.elementType)
    if isinstance(kind, MapType):
        return _has_ttl(kind.valueType)
    return isinstance(kind, StructType) and kind.names == ["value", _TTL]


def _distinct_names(kind: StructType) -> StructType:
    """Return the type with a name of its own for each field: an aggregation may have two fields called `sum`."""
    fields: list[StructField] = []
    for field in kind.fields:
        same = sum(each.name == field.name for each in kind.fields[: len(fields)])
        kind_of_field = StringType() if isinstance(field.dataType, NullType) else field.dataType
        fields.append(StructField(f"{field.name}_{same + 1}" if same else field.name, kind_of_field))
    return StructType(fields)


def _check_key(kind: DataType, operator: SparkOperator) -> None:
    assert isinstance(kind, StructType)
    for field in kind.fields:
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            raise StateError(
                f"operator {operator.number} ({operator.name}) cannot be migrated: its key has the column {field.name!r} of type "
                f"{field.dataType.simpleString()}, which is no key here. Leave its state behind with --without-operator "
                f"{operator.number}: a windowed aggregation is complete again after one window"
            )
