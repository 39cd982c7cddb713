"""Run a changed program over the recorded input of a job, next to the job, and report what it changes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.diff import TableDiff, diff
from tidewheel._checkpoint.tools.savepoint import find
from tidewheel._checkpoint.tools.state_reader import held
from tidewheel._engine.commit import is_computed
from tidewheel._engine.program_job import ProgramJob
from tidewheel._replay.recorded_input import RecordedInput
from tidewheel._replay.recording_sinks import Rows, comparable
from tidewheel._replay.scratch_run import ScratchRun, scratch_run
from tidewheel._state.auxiliary_tables import readable_key
from tidewheel._storage import Store
from tidewheel.errors import ConfigError, NotFound

_OWN, _OTHER = "shadow0", "shadow1"
"""The tokens of the two programs in names of scratch files."""


@dataclass(frozen=True)
class RowDiff:
    """The rows of one sink that only one of the two programs wrote."""

    removed: int
    """How many rows only the job's program wrote."""
    added: int
    """How many rows only the new program wrote."""
    removed_samples: tuple[dict[str, Any], ...] = ()
    added_samples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Shadowed:
    """The differences between a job and a changed program over the same batches."""

    first: int
    """The first commit whose batch was processed."""
    last: int
    batches: int
    records: int
    state: tuple[TableDiff, ...]
    """By step: keys whose state differs after the last batch; `before` is the job's, `after` the new program's.

    Renamed steps have the names of the new program.
    """
    rows: Mapping[str, RowDiff] = field(default_factory=dict)
    """By sink: rows that differ. Empty if the job's program was not given."""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By sink: the numbers of rows, of the job and of the new program, where they differ."""
    seconds: float = 0.0
    """How long the new program took, in one process."""
    old_seconds: float | None = None
    """How long the job's program took, in the same way; None if it was not given."""

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.state or self.rows or self.counts)


def shadow(
    new: ProgramJob,
    store: Store,
    *,
    last: int | None = None,
    since: str | int | None = None,
    old: ProgramJob | None = None,
    samples: int = 5,
    allow_dropped_state: Collection[str] = (),
) -> Shadowed:
    """Run a program over the last batches of a job, or all since a checkpoint, in this process; compare the results.

    `old` is the program that made the commits: it runs too, so that rows can be compared one by one. Raise `NotFound` if
    a commit is not kept, and `ConfigError` if `old` does not give the committed results.
    """
    if (last is None) == (since is None):
        raise ConfigError("give either last=, a number of batches, or since=, a checkpoint or savepoint")
    checkpoints = StreamCheckpoints(store, new.name)
    base, commits = batches_since(checkpoints, last, since)
    followed = [each for each in commits if is_computed(each.kind)]
    outstanding: dict[str, Counter[bytes]] = {}
    counts: dict[str, list[int]] = {}
    with contextlib.ExitStack() as cleanup:
        # A savepoint has a copy of its own and keeps none of the commits after it.
        for at in {base.sequence if since is None else since, commits[0].sequence}:
            cleanup.enter_context(held(store, checkpoints, at))

        runs: list[tuple[ScratchRun, RecordedInput]] = []
        for job, token, allowed in ((new, _OWN, allow_dropped_state), (old, _OTHER, ())):
            if job is not None:
                run = cleanup.enter_context(scratch_run(job, store, base, token, allow_dropped_state=allowed))
                runs.append((run, cleanup.enter_context(RecordedInput(job, store))))
        one, other = runs[0][0], runs[-1][0] if old is not None else None
        for before, committed in pairwise((base, *commits)):
            if not is_computed(committed.kind):
                for run, _ in runs:
                    run.follower.skip(committed)
                continue
            rows = [run.follow(recorded.batch(before, committed)) for run, recorded in runs]
            for name, (was, now) in one.counted(committed).items():
                found = counts.setdefault(name, [0, 0])
                found[0], found[1] = found[0] + was, found[1] + now
            if other is not None:
                _subtract(outstanding, rows[1], rows[0])
        if other is not None:
            _check_old(other, commits[-1], samples)
        state = tuple(diff(one.store, commits[-1], one.head, samples, one.follower.former))
    return Shadowed(
        followed[0].sequence,
        followed[-1].sequence,
        len(followed),
        commits[-1].event_count - base.event_count,
        state,
        {name: _row_diff(found, samples) for name, found in sorted(outstanding.items()) if found},
        {name: (was, now) for name, (was, now) in sorted(counts.items()) if was != now},
        one.seconds,
        None if other is None else other.seconds,
    )


def batches_since(
    checkpoints: StreamCheckpoints, last: int | None = None, since: str | int | None = None
) -> tuple[Manifest, list[Manifest]]:
    """Return the commit before the last batches of a job, or a given one, and all commits after it.

    Raise `NotFound` if one of them is not kept, or if there is no batch.
    """
    job, kept = checkpoints.stream_id, {state.sequence: state for state in checkpoints.list()}
    oldest = min(kept, default=0)
    if since is not None:
        base = find(checkpoints, since)
    else:
        batches = [state for state in kept.values() if is_computed(state.kind)]
        first = batches[-last] if last and last <= len(batches) else None
        if first is None or first.parent not in kept:
            reachable = sum(state.parent in kept for state in batches)
            there = "1 batch" if reachable == 1 else f"{reachable} batches"
            raise NotFound(
                f"only {there} of job {job!r} can be repeated, not {last}: a batch needs the commit before it. "
                "Job(keep=…) keeps more commits"
            )
        base = kept[first.parent]
    commits = [state for number, state in sorted(kept.items()) if number > base.sequence]
    if commits and commits[0].sequence != base.sequence + 1:
        raise NotFound(
            f"commit {base.sequence + 1} of job {job!r} is not kept; the oldest kept commit is {oldest}, and all commits after "
            f"{base.sequence} are needed. Job(keep=…) keeps more commits"
        )
    if not any(is_computed(state.kind) for state in commits):
        raise NotFound(f"job {job!r} has no batch after commit {base.sequence}")
    return base, commits


def _check_old(old: ScratchRun, committed: Manifest, samples: int) -> None:
    """Refuse a program as the job's own if it does not give the state that was committed."""
    for each in diff(old.store, committed, old.head, max(1, samples)):
        key = readable_key(each.table, each.samples[0].key)
        raise ConfigError(
            f"the program given as the job's own gives another state than commit {committed.sequence}: step {each.table!r}, key "
            f"{key!r}. It is not the program that made the commits, or it is not deterministic; `tidewheel replay` shows which "
            "batch differs"
        )


def _subtract(outstanding: dict[str, Counter[bytes]], old: Rows, new: Rows) -> None:
    """Add the rows of a batch: those of the new program count up, those of the old one down."""
    for sink in old.keys() | new.keys():
        found = outstanding.setdefault(sink, Counter())
        found.update(map(comparable, new.get(sink, ())))
        found.subtract(map(comparable, old.get(sink, ())))
        for row in [row for row, number in found.items() if number == 0]:
            del found[row]


def _row_diff(found: Counter[bytes], samples: int) -> RowDiff:
    added, removed = +found, -found

    def some(rows: Counter[bytes]) -> tuple[dict[str, Any], ...]:
        return tuple(msgspec.msgpack.decode(row) for row in list(rows)[:samples])

    return RowDiff(removed.total(), added.total(), some(removed), some(added))
