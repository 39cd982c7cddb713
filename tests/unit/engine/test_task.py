"""The task step: wire rows and a report from one partition of one level."""

from __future__ import annotations

import gc
import itertools

import msgspec
import pyarrow as pa
import pytest

from support.internals import states
from tidewheel import Job
from tidewheel._checkpoint.names import path, state_file
from tidewheel._engine import report as reports
from tidewheel._engine import wire
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.report import Attempt
from tidewheel._engine.task import TaskIdentity, run_level
from tidewheel.errors import CorruptError, StateError, StorageError, TidewheelError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_names = itertools.count()
INPUT = pa.RecordBatch.from_pydict({"user": ["a", "b", "a"], "n": [1, 2, 3]})


def summed(key, row, total):
    return total + row.n, total + row.n


def make_job(**settings) -> Job:
    return Job(f"task-{next(_names)}", state=f"memory:unit-task-{next(_names)}", n_shards=4, **settings)


@pytest.fixture
def run(tmp_path):
    """A claimed job whose tasks a test runs one by one."""
    job = make_job()
    stream = job.source("in", lambda spark: None).key_by("k", "user").stateful_map("sum", summed, default=0)
    stream.sink("out", collect())
    held = JobRun(job, job.plan())
    held.begin()
    held.local = str(tmp_path)
    yield held
    held.release()


def level(run: JobRun, number: int, partition: int, batches, **changes):
    spec = msgspec.structs.replace(run.spec(2, run.local), **changes)
    rows = list(wire.unpacked(run_level(run.plan, spec, number, TaskIdentity(partition, 7), iter(batches))))
    last = rows.pop()
    assert (last.target, last.edge) == (0, wire.REPORT)
    return rows, reports.decode(last.payload.to_pybytes())


def crossed(rows, target: int) -> list[pa.RecordBatch]:
    return [wire.record_batch(row._replace(payload=row.payload.to_pybytes()) for row in rows if row.target == target)]


def test_level_0_sends_messages_to_the_tasks_of_their_keys_and_reports_last(run):
    rows, report = level(run, 0, 5, [INPUT, INPUT])
    assert (report.level, report.partition, report.failure) == (0, 5, None)
    assert report.counts == {"in": 6, "k": 6}
    assert report.sent == {0: 6}
    assert {row.edge for row in rows} == {0}
    assert {row.origin for row in rows} == {(0, 5, 7)}
    assert [row.number for row in rows] == sorted(row.number for row in rows)
    assert report.deltas == {}


def test_a_task_reports_how_long_it_waited_for_consumers(run, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("tidewheel._engine.task.time.perf_counter", lambda: clock[0])
    rows = run_level(run.plan, run.spec(2, run.local), 0, TaskIdentity(0, 7), iter([INPUT]))
    found = []
    for batch in rows:
        found.append(batch)
        clock[0] += 100.0
    report = reports.decode(wire.reports_in(found)[0])
    assert report.took == report.idle == 100.0 * (len(found) - 1) > 0


def test_a_keyed_level_reports_its_files_and_counts(run):
    rows, _ = level(run, 0, 0, [INPUT])
    found = [level(run, 1, task, crossed(rows, task)) for task in range(2)]
    received = [report.received.get(0, 0) for _, report in found]
    assert sum(received) == 3
    assert sum(report.changed.get("sum", 0) for _, report in found) == 2
    assert sum(report.outputs["out"].rows for _, report in found if report.outputs) == 3
    for task, (_, report) in enumerate(found):
        assert all(shard % 2 == task for shard in report.deltas)
        assert all(part.sequence == 2 for parts in report.deltas.values() for part in parts)


def test_a_state_file_that_holds_something_else_is_not_reported_as_written(run):
    rows, _ = level(run, 0, 0, [INPUT], parallelism=1)
    taken = state_file(2, run.token, 1, 7, "delta")
    run.store.create(path(run.stream, taken), b"of another attempt")
    with pytest.raises(StorageError, match=f"{taken} at .* holds other state"):
        level(run, 1, 0, crossed(rows, 0), parallelism=1)


def test_reports_and_rows_for_later_levels_pass_through(run):
    ahead = [wire.Row(0, wire.REPORT, Attempt(0, task, 3), 8, b"a report") for task in (0, 1)]
    rows, report = level(run, 1, 0, [wire.record_batch(ahead)])
    assert [row._replace(payload=row.payload.to_pybytes()) for row in rows] == ahead
    assert report.consumed == ()


def test_a_task_reports_the_attempts_whose_blocks_it_processed(run):
    sent = [row for task in (0, 1) for row in level(run, 0, task, [INPUT])[0]]
    _, report = level(run, 1, 0, crossed(sent, 0))
    assert report.consumed == ((0, 0, 7), (0, 1, 7))


def test_blocks_out_of_order_are_refused(run):
    sent = [row for task in (1, 0) for row in level(run, 0, task, [INPUT])[0]]
    with pytest.raises(TidewheelError, match="task 0 of level 1 got its blocks out of order"):
        level(run, 1, 0, crossed(sent, 0))


def test_a_block_for_another_task_is_refused(run):
    rows, _ = level(run, 0, 0, [INPUT])
    with pytest.raises(TidewheelError, match="task 1 of level 1 got a block for task 0"):
        level(run, 1, 1, crossed(rows, 0))


def test_a_program_error_is_a_report_and_the_input_is_read_to_its_end(run):
    left = iter([pa.RecordBatch.from_pydict({"user": [None], "n": [1]}), INPUT, INPUT])
    rows, report = level(run, 0, 3, left)
    assert rows == []
    assert report.partition == 3
    assert report.failure.kind == "StepError"
    assert report.failure.text.startswith("step 'k', record")
    assert next(left, None) is None


def test_any_other_error_is_raised_and_garbage_is_collected_again(run):
    with pytest.raises(CorruptError, match="is not the one the driver started the batch from"):
        level(run, 1, 0, [], base_checksum=1)
    assert gc.isenabled()


def test_garbage_is_collected_again_after_a_task(run):
    level(run, 0, 0, [INPUT])
    assert gc.isenabled()
    gc.disable()
    try:
        level(run, 0, 0, [INPUT])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_shard_whose_keys_were_all_dropped_is_complete_after_a_snapshot():
    job = make_job(snapshot_every=1)
    stream = job.source("in", lambda spark: None)
    stream.key_by("k", "user").stateful_map("op", lambda k, row, s: (row.n, row.n or None)).sink("out", collect())
    with MemoryRun(job, parallelism=2) as memory:
        for round_ in range(12):
            memory.batch({"in": [{"user": user, "n": 1 - round_ % 2} for user in "abcdef"]})
            if round_ == 9:
                memory.batch({"in": [{"user": "a", "n": 5}]})
        head = memory.run.head
        assert states(memory.run.store, head) == {}
        assert any(parts.snapshot is not None for parts in head.shards.values())
        memory.batch({"in": [{"user": "b", "n": 7}]})
        assert states(memory.run.store, memory.run.head) == {"op": {"b": b"\x07"}}


class Cents(msgspec.Struct):
    cents: int = 0


def test_state_of_another_type_is_an_error_with_step_key_and_field():
    number = next(_names)

    def job(declared, make) -> Job:
        made = Job("typed", state=f"memory:unit-task-typed-{number}", n_shards=4)
        stream = made.source("in", lambda spark: None).key_by("k", "user")
        stream.stateful_map("op", lambda k, row, s: (1, s), state=declared, default=make).sink("out", collect())
        return made

    # A default that a function makes says nothing of the type, so the first start with a declared one reads all states.
    for key, cents in (("a", 3), ("b", "3")):
        with MemoryRun(job(None, lambda cents=cents: {"cents": cents})) as memory:
            memory.batch({"in": [{"user": key, "n": 1}]})
    wrong = r"step 'op', key 'b': .*declared type Cents \(Expected `int`, got `str` - at `\$.cents`\).*upgrade="
    with pytest.raises(StateError, match=wrong):
        MemoryRun(job(Cents, Cents))


@pytest.mark.parametrize("levels", [1, 2])
def test_the_same_records_twice_in_a_row_are_two_batches(levels):
    job = make_job()
    stream = job.source("in", lambda spark: None).key_by("k", "user").stateful_map("one", summed, default=0)
    if levels == 2:
        stream = stream.key_by("l", lambda n: n % 2).stateful_map("two", lambda k, n, t: (t + n, t + n), default=0)
    out = collect()
    stream.sink("out", out)
    with MemoryRun(job, parallelism=2) as memory:
        memory.batch({"in": [{"user": "a", "n": 1}]})
        memory.batch({"in": [{"user": "a", "n": 1}]})
        assert memory.run.head.event_count == 2
        assert memory.run.head.batch == 1
    assert [record["value"] for record in out.records] == [1, 2]
