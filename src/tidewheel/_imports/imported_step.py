"""State that a step gets before the job's first batch: checked, encoded, and committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._engine.commit import SourceProgress, operator_infos
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.evolve import state_of
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.key_kinds import merged_kinds
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._imports.columns import expected_type, record_fields
from tidewheel._imports.keys import ImportedKeys
from tidewheel._operators.base import Operator
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.stateful_op import StatefulOp
from tidewheel._operators.keyed.ttl import Ttl, expiry_entries
from tidewheel._operators.logic import overrides
from tidewheel._state.sorted_runs import SortedRuns
from tidewheel._state.timers import SUFFIX, THERE, Timer, encode
from tidewheel.errors import GraphError, StateError, StepError


class ImportedStep:
    """A step that gets state: its type, its keys, and how many keys were added."""

    def __init__(self, plan: Plan, operator: str, n_shards: int, key_type: type | str | None = None) -> None:
        """Find the step in the program. A `GraphError` if state cannot be imported into it."""
        self.name, self.count, self._n_shards = operator, 0, n_shards
        self._operator, self.spec = _found(plan, operator)
        self.keys = ImportedKeys(plan, operator, key_type)
        self.expected: Any = expected_type(self.spec)
        self._begun = record_fields(self.spec.hint)
        self._codec = self.spec.resolved_codec()

    @property
    def ttl(self) -> Ttl | None:
        """The time to live of the step's states."""
        ttl: Ttl | None = getattr(self._operator, "ttl", None)
        return ttl

    @property
    def has_timers(self) -> bool:
        """Whether the step's logic handles timers."""
        return isinstance(self._operator, StatefulOp) and overrides(self._operator.logic, "on_timer")

    def expect_record(self) -> None:
        """Read text as the types of the fields of the default, because no other type is declared."""
        if self._begun and self.expected is None:
            self.expected = self.spec.hint

    def add(self, entries: SortedRuns, key: Any, value: Any) -> None:
        """Add the state of a key. A `StateError` or `StepError` if key or state do not fit the program."""
        stored = to_stored(self.keys.checked(key))
        kind = self.spec.hint if self.expected is None and _has_fields(value, self._begun) else self.expected
        state = self._codec.encode(_converted(value, None if self.spec.codec else kind, key, self.name))
        entries.add(shard_of_stored(stored, self._n_shards), self.name, stored, state)
        self.count += 1

    def add_timer(self, entries: SortedRuns, timer: Timer) -> None:
        """Set a timer of a key whose state was added."""
        shard = shard_of_stored(to_stored(timer.key), self._n_shards)
        entries.add(shard, f"{self.name}/{SUFFIX}", encode(timer), THERE)

    def add_expiry(self, entries: SortedRuns, key: Any, at: int) -> None:
        """Let the state of a key expire at a time, in ns; the step must have a time to live."""
        assert self.ttl is not None
        stored = to_stored(key)
        for table, name, value in expiry_entries(self.ttl, key, at):
            entries.add(shard_of_stored(stored, self._n_shards), f"{self.name}/{table}", name, value)


def key_twice(stored: bytes) -> StateError:
    """Return the error for a key that is imported twice."""
    return StateError(f"the key {from_stored(stored)!r} comes twice in the imported rows; keep one of them")


def check_no_batch(job: str, head: Manifest | None) -> None:
    """Refuse an import into a job that has had a batch."""
    if head is not None and head.batch is not None:
        raise StateError(
            f"job {job!r} has had batches up to {head.batch}: state is imported before the first one. Import into a job of "
            "another name, or under another state URL"
        )


def commit_import(
    run: JobRun,
    steps: Sequence[ImportedStep],
    entries: SortedRuns,
    progress: Callable[[JobRun], SourceProgress] | None = None,
) -> None:
    """Commit the state of steps before the job's first batch, and the positions of sources that `progress` returns."""
    try:
        run.begin()
        check_no_batch(run.job.name, run.head)
        key_kinds = merged_kinds({}, *(step.keys.kinds() for step in steps))
        try:
            merged_kinds(run.head.key_kinds, key_kinds)
        except StepError:
            had, have = (", ".join(sorted(set(kinds.values()))) for kinds in (run.head.key_kinds, key_kinds))
            raise StateError(
                f"job {run.job.name!r} has keys of type {had} from an earlier import, and these are of type {have}; keys of "
                "different types are different keys. Import keys of one type, or start from scratch: `tidewheel reset` "
                "deletes the state"
            ) from None
        files = DeltaFiles(run.store, run.head, run.token)
        for shard in entries.shards():
            for table, items in entries.tables(shard):
                files.add(shard, table, items)
        infos = operator_infos(run.plan)
        operators = {**run.head.operators, **{step.name: infos[step.name] for step in steps}}
        reports = [*files.reports(), Report(1, 0, key_kinds=key_kinds)]
        read = None if progress is None else progress(run)
        run.commit(run.spec(run.head.parallelism, ""), reports, "import", None, read, operators=operators)
    finally:
        run.release()


def importable(plan: Plan) -> list[str]:
    """Return the steps into which state can be imported."""
    return [node.name for node in plan.nodes if state_of(node) is not None]


def _found(plan: Plan, operator: str) -> tuple[Operator, StateSpec]:
    for node in plan.nodes:
        spec = state_of(node)
        if node.name == operator and spec is not None:
            return node.operator, spec
    able = ", ".join(map(repr, importable(plan)))
    raise GraphError(
        f"state cannot be imported into {operator!r}: it goes into a stateful_map, stateful_op or reduce; there are "
        f"{able or 'none'}"
    )


def _has_fields(value: Any, fields: frozenset[str]) -> bool:
    """Return whether a value is a record's fields, or some of them."""
    return isinstance(value, dict) and bool(value) and fields.issuperset(value)


def _converted(value: Any, expected: Any, key: Any, operator: str) -> Any:
    if expected is None:
        return value
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError as error:
        raise StateError(
            f"the state of key {key!r} does not fit what {operator!r} declares (state=, or the type of default=): {error}"
        ) from None
