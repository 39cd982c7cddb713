"""From reports to a manifest: which reports are refused, and what each one adds."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.internals import FileRef, PartRef, ShardParts
from tidewheel import Job, count, sum_
from tidewheel._checkpoint.manifest import OperatorInfo, PinnedCell
from tidewheel._checkpoint.named_results import result_fields
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import (
    MixedAttempts,
    SourceProgress,
    added,
    check_reports,
    next_manifest,
    next_shards,
    operator_infos,
    staged_outputs,
)
from tidewheel._engine.report import Attempt, Failure, Report, Staged, decode, encode
from tidewheel._state.compaction import Merged
from tidewheel._state.layout import NUMBERS, Accumulator, StateLayout
from tidewheel._state.type_description import UNDECLARED, Field
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.codecs import pickle_codec
from tidewheel.errors import StateError, StepError, TidewheelError
from tidewheel.sinks import collect


def part(name: str, sequence: int) -> PartRef:
    return PartRef(FileRef(name, 10, 1), sequence, 10, 1)


def whole(parallelism: int = 2, splits: int = 3) -> list[Report]:
    """Return the reports of a batch with two levels in which nothing went wrong."""
    first = [Report(0, number, sent={0: 2}) for number in range(splits)]
    second = [Report(1, number, received={0: 2 * splits if number == 0 else 0}) for number in range(parallelism)]
    return first + second


TASKS = {0: 3, 1: 2}
"""The number of tasks of each level of that batch."""


@given(st.permutations(whole()))
def test_a_whole_batch_is_accepted_in_any_order(reports):
    check_reports(reports, TASKS)


@pytest.mark.parametrize("lost", whole())
def test_a_missing_report_of_a_level_is_refused(lost):
    reports = [msgspec.structs.replace(r, sent={}, received={}) for r in whole() if r != lost]
    with pytest.raises(TidewheelError, match=f"level {lost.level} of the batch has reports of the partitions"):
        check_reports(reports, TASKS)


@pytest.mark.parametrize("level", [0, 1])
def test_a_level_that_is_missing_altogether_is_refused(level):
    reports = [msgspec.structs.replace(r, sent={}, received={}) for r in whole() if r.level != level]
    with pytest.raises(TidewheelError, match=rf"level {level} .* partitions \[\], not of \[0, 1.*nothing is committed"):
        check_reports(reports, TASKS)


@pytest.mark.parametrize("partitions", [0, 1, 5])
def test_a_level_that_reads_a_dataframe_may_have_any_number_of_tasks(partitions):
    check_reports([msgspec.structs.replace(r, received={}) for r in whole(splits=0)], {0: None, 1: 2})
    check_reports(whole(splits=partitions), {0: None, 1: 2})


@pytest.mark.parametrize("twice", whole())
def test_a_doubled_report_is_refused(twice):
    plain = [msgspec.structs.replace(r, sent={}, received={}) for r in [*whole(), twice]]
    with pytest.raises(TidewheelError, match=f"level {twice.level} of the batch has reports of the partitions"):
        check_reports(plain, TASKS)


def test_a_gap_among_the_partitions_of_a_dataframe_is_refused():
    with pytest.raises(TidewheelError, match=r"partitions \[0, 2\], not of \[0, 1\]"):
        check_reports([Report(0, 0), Report(0, 2)], {0: None})


def test_a_partition_beyond_the_parallelism_is_refused():
    with pytest.raises(TidewheelError, match=r"partitions \[0, 2\]"):
        check_reports([Report(1, 0), Report(1, 2)], {1: 2})


def test_a_report_of_a_level_that_did_not_run_is_refused():
    with pytest.raises(TidewheelError, match="level 2"):
        check_reports([*whole(), Report(2, 0)], TASKS)


@pytest.mark.parametrize(("sent", "received"), [(3, 2), (2, 3), (1, 0), (0, 1)])
def test_messages_that_were_lost_or_doubled_between_levels_are_refused(sent, received):
    reports = [Report(0, 0, sent={7: sent}), Report(1, 0, received={7: received})]
    with pytest.raises(MixedAttempts, match=f"edge 7 was sent {sent} messages and {received} arrived"):
        check_reports(reports, {0: 1, 1: 1})


def consumed(*attempts: int) -> list[Report]:
    """Return the reports of a batch whose tasks of level 1 consumed these attempts of the one task of level 0."""
    first = Report(0, 0, attempt=1, sent={0: len(attempts)})
    received = {0: 1}
    second = [Report(1, task, consumed=(Attempt(0, 0, n),), received=received) for task, n in enumerate(attempts)]
    return [first, *second]


def test_a_batch_that_consumed_one_attempt_of_each_task_is_accepted():
    check_reports(consumed(1, 1), {0: 1, 1: 2})


@pytest.mark.parametrize("attempts", [(1, 2), (2, 1), (2, 2)])
def test_output_of_another_attempt_than_the_reported_one_is_detected(attempts):
    with pytest.raises(MixedAttempts, match="another attempt of task 0 of level 0"):
        check_reports(consumed(*attempts), {0: 1, 1: 2})


@given(st.data())
def test_a_batch_is_accepted_only_if_every_reported_block_was_consumed(data):
    """Two attempts of each map task sent blocks to any tasks; each task of level 1 took the output of one of them."""
    parallelism, maps = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    sizes = {
        (task, attempt): [data.draw(st.integers(0, 2)) for _ in range(parallelism)]
        for task in range(maps)
        for attempt in (1, 2)
    }
    reported = [data.draw(st.sampled_from((1, 2))) for _ in range(maps)]
    reports = [Report(0, task, attempt=n, sent={0: sum(sizes[task, n])}) for task, n in enumerate(reported)]
    took = {(target, task): data.draw(st.sampled_from((1, 2))) for target in range(parallelism) for task in range(maps)}
    for target in range(parallelism):
        blocks = {Attempt(0, task, took[target, task]): sizes[task, took[target, task]][target] for task in range(maps)}
        there = tuple(attempt for attempt, size in blocks.items() if size)
        reports.append(Report(1, target, consumed=there, received={0: sum(blocks.values())}))
    try:
        check_reports(reports, {0: maps, 1: parallelism})
    except MixedAttempts:
        return  # It runs again.
    for (target, task), attempt in took.items():
        assert sizes[task, attempt][target] == sizes[task, reported[task]][target]


def test_a_program_error_comes_before_all_else():
    with pytest.raises(StepError, match=r"^step 'x', record 1: it fails$"):
        check_reports([Report(1, 0, Failure("step 'x', record 1: it fails", "x"))], {0: 4, 1: 4})


def test_reports_travel_as_bytes():
    report = Report(
        1, 2, deltas={3: [part("d", 4)]}, merged={3: Merged((part("b", 3),), (part("s", 3),), True)},
        outputs={"out": Staged(5, b"token")},
        counts={"op": 6}, sent={0: 1}, received={1: 2}, changed={"op": 3}, rejected=4,
    )  # fmt: skip
    assert decode(encode(report)) == report
    assert decode(encode(Report(0, 0, Failure("text", "op")))).failure == Failure("text", "op")


def test_the_deltas_of_all_levels_follow_a_shards_parts_in_order():
    base = {1: ShardParts(None, (part("old", 4),)), 2: ShardParts(None, (part("other", 3),))}
    reports = [Report(1, 0, deltas={1: [part("b", 5)]}), Report(2, 0, deltas={1: [part("a", 5)], 7: [part("a", 5)]})]
    for order in itertools.permutations(reports):
        assert next_shards(base, order, 64) == {
            1: ShardParts(None, (part("old", 4), part("a", 5), part("b", 5))),
            2: base[2],
            7: ShardParts(None, (part("a", 5),)),
        }


def test_the_result_of_a_merge_replaces_its_runs():
    base = {1: ShardParts(None, (part("old", 3), part("older", 4)))}
    merged = Merged(base[1].deltas, (part("snap", 4),), True)
    reports = [Report(1, 0, deltas={1: [part("new", 6)]}), Report(0, 0, merged={1: merged})]
    assert next_shards(base, reports, 64) == {1: ShardParts(part("snap", 4), (part("new", 6),))}


def test_a_merge_whose_runs_are_gone_counts_for_nothing():
    base = {1: ShardParts(None, (part("old", 4),))}
    late = Merged((part("gone", 3), part("old", 4)), (part("snap", 4),), True)
    assert next_shards(base, [Report(0, 0, merged={1: late, 2: late})], 64) == base


def test_a_delta_out_of_order_is_refused():
    base = {1: ShardParts(None, (part("old", 4),))}
    with pytest.raises(StateError, match="not of one commit after 4"):
        next_shards(base, [Report(1, 0, deltas={1: [part("late", 4)]})], 64)


def test_outputs_are_in_task_order_without_empty_ones():
    reports = [
        Report(1, 1, outputs={"b": Staged(1, b"1-1"), "a": Staged(2, b"a")}),
        Report(0, 0, outputs={"b": Staged(3, b"0-0")}),
        Report(1, 0, outputs={"b": Staged(0, None)}),
    ]
    expected = [("a", 2, (b"a",)), ("b", 4, (b"0-0", b"1-1"))]
    for order in itertools.permutations(reports):
        assert [(output.sink, output.rows, output.tokens) for output in staged_outputs(order)] == expected


def test_counters_are_summed_by_name():
    assert added({"a": 1}, [{"a": 2, "b": 3}, {}, {"b": 1}]) == {"a": 3, "b": 4}


def test_the_manifest_describes_every_step_with_state():
    job = Job("infos", state="memory:unit-runtime")
    keyed = job.source("in", lambda spark: None).key_by("k", "user")
    keyed.stateful_map("map", lambda k, v, s: (v, s), version=3).sink("a", collect())
    keyed.stateful_op("op", lambda m, s, o: s, codec=pickle_codec()).sink("b", collect())
    keyed.aggregate("sum", total=sum_("n"), rows=count()).sink("c", collect())
    assert operator_infos(job.plan()) == {
        "map": OperatorInfo("stateful_map", "msgpack", 3, values=(Field("", UNDECLARED),)),
        "op": OperatorInfo("stateful_op", "pickle", 1),
        "sum": OperatorInfo(
            "aggregate",
            "msgpack",
            1,
            layout=StateLayout(
                NUMBERS, numbers=(Accumulator("count", "n"), Accumulator("sum", "n"), Accumulator("rows"))
            ),
            values=result_fields({"total": "sum:n", "rows": "rows:"}),
        ),
    }


def test_the_next_manifest_continues_the_base():
    job = Job("next", state="memory:unit-runtime")
    job.source("in", lambda spark: None).key_by("k", "user").stateful_map("m", lambda k, v, s: (v, s)).sink(
        "o", collect()
    )
    base = Manifest(
        CheckpointId("next", 6),
        kind="claim",
        event_count=10,
        counts={"in": 10},
        operators={"gone": OperatorInfo("stateful_map", "msgpack", 1)},
        shards={1: ShardParts(None, (part("old", 4),))},
        source_offsets={"in": "6"},
        lineage="l",
        host="here",
    )
    spec = BatchSpec("next", "memory:", "", 6, 0, 7, "run", 64, 2, now=99)
    reports = [
        Report(0, 0, counts={"in": 5, "k": 5}, outputs={"o": Staged(1, b"t")}),
        Report(1, 0, deltas={1: [part("new", 7)]}, counts={"m": 5}),
    ]
    found = next_manifest(base, spec, job.plan(), reports, "batch", SourceProgress(3, {"in": "7"}))
    assert (found.sequence, found.kind, found.run, found.parent) == (7, "batch", "run", 6)
    assert (found.event_count, found.now, found.parallelism, found.batch) == (15, 99, 2, 3)
    assert found.counts == {"in": 15, "k": 5, "m": 5}
    assert found.source_offsets == {"in": "7"}
    assert set(found.operators) == {"gone", "m"}
    assert found.shards[1].deltas == (part("old", 4), part("new", 7))
    assert [output.sink for output in found.outputs] == ["o"]
    assert (found.lineage, found.n_shards) == ("l", 64)


def test_the_manifest_records_all_that_the_batch_depended_on():
    job = Job("inputs", state="memory:unit-runtime")
    job.source("in", lambda spark: None).sink("o", collect())
    base = Manifest(CheckpointId("inputs", 6), epoch=40, delivered_epoch=30, metadata={"mine": "stays"})
    cells = {"limit": PinnedCell(3, b"\x07"), "unset": PinnedCell(0)}
    spec = BatchSpec("inputs", "", "", 6, 0, 7, "run", 64, 2, now=99, last_epoch=30, epoch=40, cells=cells)
    batch = next_manifest(base, spec, job.plan(), [], "batch", SourceProgress(0))
    assert (batch.cells, batch.now, batch.parallelism) == (cells, 99, 2)
    assert (batch.carried_epoch, batch.delivered_epoch) == (40, 40)
    assert batch.metadata == {"mine": "stays"}, "metadata is the user's own"
    later = next_manifest(batch, msgspec.structs.replace(spec, sequence=8, epoch=None), job.plan(), [], "batch")
    assert (later.carried_epoch, later.delivered_epoch) == (None, 40)
