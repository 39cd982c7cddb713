"""Choose the layout of a batch: the number of tasks, the data that each reads, and whether messages are shuffled.

One rule decides, in this order:

1. A small batch runs in one task, which runs all levels: nothing is shuffled. A batch is small if its splits have at most
   `TaskLimits.small_bytes`, or if one task should finish it sooner than several, judged by the batch before and by what it
   costs to run several tasks. The second part holds only if tasks run on this machine: elsewhere, one task would have to
   fetch the shards that other hosts have worked on.
2. If the key is a column of the source, and few tasks can each read the whole batch for less than a shuffle costs, each task
   reads the whole batch and keeps the records of its own keys. Level 0 then needs no tasks of its own.
3. Otherwise each task reads a range of the splits.

In 2 and 3, messages are shuffled between the levels that are left if there are several levels and several tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidewheel._checkpoint.manifest import LayoutKind
from tidewheel._connectors.split import dealt, may_be_shared
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan, key_column
from tidewheel._engine.task import SourceSplit
from tidewheel._operators.stateless.source import SourceOperator


class TaskLimits(msgspec.Struct, frozen=True):
    """When it pays to divide a batch among tasks. Only tests choose other values."""

    small_bytes: int = 256 * 1024
    """A batch whose splits have up to this many bytes is small; so is one without splits if the state has no more."""
    query_s: float = 0.25
    """About how many seconds a query with a shuffle adds to the work of its tasks on a local Spark."""
    job_s: float = 0.05
    """The same for a plain job, without a shuffle."""
    pool_s: float = 0.005
    """The same for several processes next to the driver."""
    pool_after: int = 1
    """The number of batches after which a run starts these processes."""


DEFAULT_LIMITS = TaskLimits()

SPARK_TASKS, WORKER_PROCESSES = "tasks of Spark", "worker processes next to the driver"
"""Where tasks run, as people read it."""

SplitsByTask = Sequence[Sequence[SourceSplit]]


class Layout(msgspec.Struct, frozen=True):
    """The work of the tasks of a batch."""

    spec: BatchSpec
    """The values pinned for the batch, with the number of tasks of each level but the first."""
    levels: range
    """The levels that run, and so report."""
    splits: SplitsByTask
    """The splits that each task of the first of these levels reads, in the order of the source."""

    @property
    def tasks(self) -> dict[int, int]:
        """The number of tasks of each level."""
        return {**dict.fromkeys(self.levels, self.spec.parallelism), self.levels[0]: len(self.splits)}

    @property
    def shuffles(self) -> bool:
        """Whether messages go from tasks to others."""
        return len(self.levels) > 1 and self.spec.parallelism > 1

    def ran_in(self, place: str) -> str:
        """Return where this batch runs, as people read it: a place, and whether messages are shuffled."""
        shared = ", each task reading the whole batch" if self.spec.shared_key is not None else ""
        return f"{place}{shared}, {'with' if self.shuffles else 'without'} a shuffle"


def in_one_task(spec: BatchSpec, levels: range, splits: Sequence[SourceSplit]) -> Layout:
    """Return the layout of a small batch."""
    return Layout(msgspec.structs.replace(spec, parallelism=1), levels, [splits])


def divided(spec: BatchSpec, levels: range, splits: Sequence[SourceSplit], source_key: str | None) -> Layout:
    """Return the layout of a batch that is divided among its tasks. `source_key` is the source's column that is the key."""
    if source_key is not None and may_be_shared([split for _, split in splits], spec.parallelism):
        shared = msgspec.structs.replace(spec, shared_key=source_key)
        return Layout(shared, levels[1:], [splits] * spec.parallelism)
    by_task = dealt([split.size for _, split in splits], spec.parallelism)
    # A batch without splits has one task all the same.
    return Layout(spec, levels, [[splits[position] for position in positions] for positions in by_task] or [[]])


def batch_rule(plan: Plan) -> str:
    """Return where the batches of a program run, and whether messages are shuffled, as people read it."""
    shuffles = len(plan.levels) - 1
    rule = f"in {SPARK_TASKS}, " + {0: "without a shuffle", 1: "with a shuffle"}.get(
        shuffles, f"with {shuffles} shuffles"
    )
    operators = [node.operator for node in plan.sources()]
    if any(isinstance(each, SourceOperator) and not each.source.has_reader for each in operators):
        return rule
    if shuffles:
        rule += "; small ones in one task, without a shuffle"
    if key_column(plan) is not None:
        rule += "; few tasks that read files may each read the whole batch, which saves a shuffle"
    return f"{rule}; on a local Spark, those without a shuffle in {WORKER_PROCESSES}, after the first ones"


def repeated(
    spec: BatchSpec, levels: range, splits: Sequence[SourceSplit], kind: LayoutKind, source_key: str | None
) -> Layout:
    """Return the layout that a committed batch had. A layout that is unknown is that of one task."""
    if kind in ("", "one"):
        return in_one_task(spec, levels, splits)
    return divided(spec, levels, splits, source_key if kind == "shared" else None)


def is_small(
    size: int, seconds: float | None, overhead: float, tasks: int, small_bytes: int = DEFAULT_LIMITS.small_bytes
) -> bool:
    """Return whether one task should finish a batch sooner than several.

    `seconds` is the expected time of one task (None: unknown), `overhead` the time that running several tasks adds.

    >>> is_small(1_000, None, 0.25, 2), is_small(1 << 20, None, 0.25, 2)
    (True, False)
    >>> is_small(1 << 20, 0.4, 0.25, 2), is_small(1 << 20, 0.6, 0.25, 2)
    (True, False)
    """
    return size <= small_bytes or (seconds is not None and seconds <= overhead + seconds / max(tasks, 2))
