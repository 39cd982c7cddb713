"""golden: a disturbed run of a job has the same output and state as an undisturbed one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tidewheel._core.text import shortened
from tidewheel._operators.graph import Graph
from tidewheel._program.job import Job
from tidewheel._testing.play import Inputs, play_in_memory, play_on_spark
from tidewheel._testing.result import Result
from tidewheel._testing.rewire import collecting
from tidewheel._testing.script import RESCALE, Batch, Flush, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Comparison = Literal["ordered", "last", "any order"]
"""How to compare the output of a sink: the records of each key in order, the last record of each key, or all records."""

CRASHES = (
    "task.started",
    "task.delta",
    "task.delta-written",
    "task.output-prepared",
    "task.reported",
    "commit.before",
    "commit.created",
    "publish.before-sink",
    "publish.done",
    "start.claimed",
)
DRIVER_CRASHES = (
    "batch.started",
    "batch.ran",
    "commit.before",
    "commit.created",
    "publish.before-sink",
    "publish.done",
)

_LONGEST = 300
"""The maximum number of characters of a value in an error."""

_ONCE_PER_BATCH = ("aggregate", "reduce")


def golden(
    job: Job | Callable[[], Job],
    inputs: Inputs,
    *,
    seed: int = 0,
    runs: int = 10,
    batch_size: int | None = None,
    max_parallelism: int = 4,
    flush: bool = True,
    compare: Mapping[str, Comparison] | None = None,
    spark: SparkSession | None = None,
    spark_runs: int = 1,
) -> Result:
    """Run a job plainly, then `runs` times with random batches, crashes, restarts and rescales, and compare.

    Output is compared by key and in order, state by step and key. The output of sinks without keys is compared in any order.
    The output after an `aggregate` or `reduce`, which emit once per batch, is compared by the last record of each key.
    `compare` sets another comparison for a sink by its name. If the results of a program depend on where batches end (late
    data, schedules), pass a `batch_size`: then batches always end at the same positions.

    All random choices come from `seed`; an `AssertionError` contains the seed, the steps and the difference. With a session,
    `spark_runs` more runs use Spark. The result is that of the plain run. If the program keeps objects that a run changes,
    pass a function that creates the job.
    """

    def make() -> Job:
        return collecting(job if isinstance(job, Job) else job())

    whole = {name: _alike(records) for name, records in inputs.items()}
    total = sum(map(len, whole.values()))
    plain = play_in_memory(make(), [*_batches(whole, batch_size), *[Flush()] * flush], 1, 1, None, None)
    example = make()
    ways, most = _ways(example.graph, batch_size, compare or {}), min(max_parallelism, example.n_shards)
    on_spark = [number >= runs for number in range(runs + (spark_runs if spark is not None else 0))]
    for number, with_spark in enumerate(on_spark):
        draw = random.Random(f"{seed}/{number}")
        todo = disturbed(draw, whole, batch_size, most, flush, with_spark)
        parallelism, partitions = draw.randint(1, most), draw.randint(1, 3)
        if with_spark:
            assert spark is not None
            result = play_on_spark(make(), todo, parallelism, 1, spark)
        else:
            result = play_in_memory(make(), todo, parallelism, partitions, None, None)
        different = list(_differences(plain, result, ways, total))
        if different:
            raise AssertionError(
                f"run {number} of seed {seed}{' on Spark' if with_spark else ''} differs from the plain run:\n  "
                + "\n  ".join(different[:10])
                + f"\nit began with {parallelism} tasks and did:\n  "
                + "\n  ".join(map(_description, todo))
            )
    return plain


def disturbed(
    draw: random.Random, inputs: Inputs, batch_size: int | None, most: int, flush: bool, spark: bool = False
) -> list[Step]:
    """Return steps with the inputs, and with random crashes and rescales."""
    todo: list[Step] = []
    points = DRIVER_CRASHES if spark else CRASHES
    cut = _batches(inputs, batch_size) if batch_size is not None else _random_batches(draw, inputs, 2 if spark else 8)
    for batch in cut:
        if draw.random() < 0.4:
            todo.append(RESCALE(draw.randint(1, most)))
        crashes = tuple(draw.choices(points, k=draw.choice((0, 1) if spark else (0, 0, 1, 1, 2))))
        todo.append(Batch(batch.inputs, crashes))
    if flush:
        todo.append(Flush(tuple(draw.choices(points, k=0 if spark else draw.choice((0, 1))))))
    return todo


def _batches(inputs: Inputs, size: int | None) -> list[Batch]:
    longest = max(map(len, inputs.values()), default=0)
    size = size or max(longest, 1)
    return [
        Batch({name: records[at : at + size] for name, records in inputs.items()}) for at in range(0, longest, size)
    ]


def _random_batches(draw: random.Random, inputs: Inputs, most: int) -> list[Batch]:
    pieces = draw.randint(1, most)
    cuts = {
        name: [0, *sorted(draw.randint(0, len(records)) for _ in range(pieces - 1)), len(records)]
        for name, records in inputs.items()
    }
    return [
        Batch({name: records[cuts[name][at] : cuts[name][at + 1]] for name, records in inputs.items()})
        for at in range(pieces)
    ]


def _alike(records: Sequence[Any]) -> list[Any]:
    """Add missing columns to all dicts, because columns must not depend on where a batch ends."""
    names = list(dict.fromkeys(name for record in records if isinstance(record, dict) for name in record))
    return [{name: record.get(name) for name in names} if isinstance(record, dict) else record for record in records]


class _Way(NamedTuple):
    """How a sink's output is compared, and the column of its keys."""

    comparison: Comparison
    key: str | None


def _ways(graph: Graph, batch_size: int | None, asked: Mapping[str, Comparison]) -> dict[str, _Way]:
    per_batch: set[int] = set()
    ways: dict[str, _Way] = {}
    for node in graph.nodes:
        if node.operator.kind in _ONCE_PER_BATCH or any(port.node in per_batch for port in node.inputs):
            per_batch.add(node.id)
        if node.operator.kind == "sink":
            usual: Comparison = "last" if node.id in per_batch and batch_size is None else "ordered"
            key = getattr(node.operator, "key_name", None)
            ways[node.name] = _Way(asked.get(node.name, usual if key else "any order"), key)
    unknown = sorted(set(asked) - set(ways))
    if unknown:
        raise ValueError(f"compare names the sink {', '.join(unknown)}; there are {', '.join(ways)}")
    return ways


def _differences(plain: Result, found: Result, ways: Mapping[str, _Way], total: int) -> Iterator[str]:
    for name, way in ways.items():
        left, right = _grouped(plain.outputs[name], way), _grouped(found.outputs[name], way)
        yield from _unequal(f"output {name!r}", left, right)
    for operator in sorted(plain.states.keys() | found.states.keys()):
        yield from _unequal(f"state {operator!r}", plain.states.get(operator, {}), found.states.get(operator, {}))
    counted = found.checkpoint.event_count
    if counted != total:
        yield f"{counted} records were counted, but the input has {total}"


def _grouped(records: list[dict[str, Any]], way: _Way) -> dict[Any, Any]:
    """Return the records to compare, by key if they have keys."""
    if way.comparison == "any order":
        return {"all": sorted(map(repr, records))}
    groups: dict[Any, Any] = {}
    for record in records:
        groups.setdefault(record[way.key] if way.key else None, []).append(record)
    return {key: group[-1] for key, group in groups.items()} if way.comparison == "last" else groups


def _unequal(what: str, left: Mapping[Any, Any], right: Mapping[Any, Any]) -> Iterator[str]:
    for key in [*left, *(key for key in right if key not in left)]:
        expected, actual = left.get(key), right.get(key)
        if expected == actual:
            continue
        if isinstance(expected, list) and isinstance(actual, list):
            pairs = enumerate(zip_longest(expected, actual, fillvalue="nothing"))
            at, (one, other) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
            there, wanted = shortened(other, _LONGEST), shortened(one, _LONGEST)
            yield f"{what}, key {key!r}, number {at} of {len(expected)}: {there} instead of {wanted}"
        else:
            yield f"{what}, key {key!r}: {shortened(actual, _LONGEST)} instead of {shortened(expected, _LONGEST)}"


def _description(step: Step) -> str:
    """Return a short description of a step."""
    if isinstance(step, Batch):
        sizes = ", ".join(f"{len(records)} of {name}" for name, records in step.inputs.items())
        return f"batch: {sizes}" + "".join(f"; died at {point}" for point in step.crashes)
    return repr(step)
