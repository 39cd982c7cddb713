"""A run of a job: what is committed is published, whatever happens in between."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from typing import ClassVar

import pytest

from support.internals import faults, states
from tidewheel import Job, RunOptions, StoredJob, agg, sinks
from tidewheel._checkpoint.tools.restore import restore
from tidewheel._connectors.memory.collect import Collect
from tidewheel._core.faults import InjectedFault
from tidewheel._engine import job_run
from tidewheel._engine.claim import claim
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.stopped_job import StoppedJob
from tidewheel._spark.driver import Driver
from tidewheel.checkpoints import CheckpointId
from tidewheel.errors import HeldError, StateError
from tidewheel.sinks import collect
from tidewheel.testing import Clock, MemoryRun

_names = itertools.count()


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


class Program:
    """The same job, made anew for each run, with one list for all its output."""

    def __init__(self, **settings) -> None:
        self.url, self.settings, self.out = f"memory:unit-run-{next(_names)}", settings, collect()

    def job(self, stateful: str = "sum", sink: str = "out") -> Job:
        job = Job("program", state=self.url, n_shards=4, **self.settings)
        stream = job.source("in", lambda spark: None).key_by("k", "user", value="n")
        stream.stateful_map(stateful, lambda key, n, total: (total + n, total + n), default=0).sink(sink, self.out)
        return job

    def values(self) -> list[int]:
        return [record["value"] for record in self.out.records]


def rows(*numbers: int) -> dict:
    return {"in": [{"user": "a", "n": n} for n in numbers]}


def test_state_and_output_continue_from_run_to_run():
    program = Program()
    for number in (1, 2, 3):
        with MemoryRun(program.job()) as run:
            run.batch(rows(number))
    assert program.values() == [1, 3, 6]
    assert states(run.run.store, run.run.head) == {"sum": {"a": b"\x06"}}


def test_a_run_that_ends_or_cannot_begin_releases_its_sinks():
    class Watched(Collect):
        stopped: ClassVar[list[str]] = []

        def stop(self, job: str) -> None:
            self.stopped.append(job)

    program = Program()
    program.out = Watched([])
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        with pytest.raises(HeldError):
            MemoryRun(program.job())
        assert Watched.stopped == ["program"]
    assert Watched.stopped == ["program"] * 2


@pytest.mark.parametrize(
    ("point", "published"),
    [("commit.before", False), ("commit.created", True), ("publish.before-sink", True), ("publish.done", True)],
)
def test_a_batch_counts_from_its_commit_on_and_its_output_is_never_lost(point, published):
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        faults.arm(f"{point}=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(2))
        faults.arm("")
    with MemoryRun(program.job()) as run:
        assert program.values() == ([1, 3] if published else [1])
        run.batch(rows(4))
    assert program.values() == ([1, 3, 7] if published else [1, 5])


def test_output_is_published_also_if_no_batch_ever_comes():
    program = Program()
    with MemoryRun(program.job()) as run:
        faults.arm("commit.created=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(1))
        faults.arm("start.claimed=raise")
    with pytest.raises(InjectedFault):
        MemoryRun(program.job())
    faults.arm("")
    assert program.values() == []
    with MemoryRun(program.job()):
        assert program.values() == [1]


def test_waiting_output_survives_a_move_of_keys():
    program = Program()
    with MemoryRun(program.job()) as run:
        faults.arm("commit.created=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(1))
        faults.arm("")
    with StoppedJob(program.job()) as stopped:
        taken = stopped.collect("a")
        stopped.acquire("b", taken)
        stopped.commit()
    with MemoryRun(program.job()) as run:
        assert program.values() == [1]
        run.batch(rows(1))
    assert program.values() == [1, 1]


def test_a_failed_batch_leaves_no_trace():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        before = run.run.head
        faults.arm("task.reported=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(2))
        faults.arm("")
        assert run.run.checkpoints.latest() == before
        run.batch(rows(3))
    assert program.values() == [1, 4]


def test_an_ended_job_takes_no_more_data():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        run.flush()
        with pytest.raises(StateError, match="has ended for good: a run with --until end"):
            run.batch(rows(2))
    with MemoryRun(program.job()) as run, pytest.raises(StateError, match="or give the program another job name"):
        run.batch(rows(2))


def test_the_error_of_an_ended_job_names_ways_that_work():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        run.flush()
        flushed = run.run.head.sequence
    with MemoryRun(program.job()) as run:
        with pytest.raises(
            StateError, match=rf"with commit {flushed}, .*tidewheel reset program --state memory:"
        ) as refused:
            run.batch(rows(2))
        assert f"`tidewheel checkpoints restore program {flushed - 1} --state {program.url}`" in str(refused.value)
        restored = run.run.checkpoints
    restore(restored, flushed - 1, keep_output=True)
    with MemoryRun(program.job()) as run:
        run.batch(rows(2))
    assert program.values() == [1, 3]


def test_an_ended_job_points_to_a_kept_checkpoint_only():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        run.flush()
        run.run.checkpoints.delete_before(run.run.head.sequence)
        with pytest.raises(StateError, match=r"To continue, start from scratch with `tidewheel reset"):
            run.batch(rows(2))


def started(job: Job, **options) -> list[str | None]:
    """Return the phases that a start comes to before it would start Spark."""
    phases: list[str | None] = []

    def enter(phase: str | None) -> None:
        phases.append(phase)
        if phase == "Spark":
            raise RuntimeError("Spark is not needed here")

    with contextlib.suppress(RuntimeError):
        Driver(job, job.plan(), RunOptions(on_phase=enter, **options)).execute()
    return phases


def test_an_ended_job_is_refused_before_spark_unless_a_run_needs_no_data(tmp_path):
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        run.flush()
    for until in ("caught-up", None):
        with pytest.raises(StateError, match="'program' has ended for good"):
            started(program.job(), until=until, local=str(tmp_path))
    # A bounded run that is repeated has nothing more to read.
    assert started(program.job(), until="end", local=str(tmp_path)) == ["checking", "Spark"]


def test_any_run_publishes_the_unpublished_output_of_an_ended_job(tmp_path):
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        faults.arm("commit.created=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(2))
        faults.arm("")
        run.run.recall()
        head = run.run.head
        run.run.checkpoints.commit(
            head.replace(id=CheckpointId("program", head.sequence + 1), flushed=head.sequence, outputs_of=head.sequence)
        )
    assert started(program.job(), until="caught-up", local=str(tmp_path)) == ["checking", "Spark"]


def test_a_renamed_operator_is_refused_before_anything_is_claimed():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
    newest = run.run.head.sequence
    with pytest.raises(StateError, match=r"names the step 'sum' with \d+ keys?, which the program lacks"):
        MemoryRun(program.job(stateful="total"))
    with MemoryRun(program.job()) as run:
        assert run.run.head.sequence == newest + 1


def unpublished() -> Program:
    """A program whose run has died between the commit of a batch and its publication."""
    program = Program()
    with MemoryRun(program.job()) as run:
        faults.arm("commit.created=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(1))
        faults.arm("")
    return program


def test_removing_a_sink_with_unpublished_output_is_refused():
    program = unpublished()
    with pytest.raises(StateError, match=r"for the sink 'out', which the program lacks.*--drop-unpublished out"):
        MemoryRun(program.job(sink="elsewhere"))
    with MemoryRun(program.job()):
        assert program.values() == [1]


def test_unpublished_output_can_be_dropped_once():
    program = unpublished()
    with MemoryRun(program.job(sink="elsewhere"), drop_unpublished=["out"]):
        pass
    with MemoryRun(program.job(sink="another")) as run:
        run.batch(rows(2))
    assert program.values() == [3], "the state has both batches"


def test_only_the_output_of_the_named_sink_is_dropped():
    program = unpublished()
    with MemoryRun(program.job(), drop_unpublished=["other"]):
        assert program.values() == [1]


@pytest.fixture
def abandoned(tmp_path):
    """A program with output of a future that a restore has abandoned, which no run has taken back yet."""
    program = Program()
    program.out = sinks.files(str(tmp_path / "out"), format="json")
    for number in (1, 2):
        with MemoryRun(program.job()) as run:
            run.batch(rows(number))
    restore(run.run.checkpoints, 3)
    return program


def lines(tmp_path) -> list[str]:
    return [path.read_text() for path in sorted((tmp_path / "out").glob("*.json"))]


def test_removing_a_sink_with_output_to_retract_is_refused(abandoned, tmp_path):
    with pytest.raises(
        StateError, match=r"restored to checkpoint 3, and the program lacks the sink 'out'.*-unpublished out"
    ):
        MemoryRun(abandoned.job(sink="elsewhere"))
    assert len(lines(tmp_path)) == 2
    with MemoryRun(abandoned.job()):
        assert len(lines(tmp_path)) == 1
    with MemoryRun(abandoned.job(sink="elsewhere")) as run:
        run.batch(rows(5))
    assert '"value":6' in "".join(lines(tmp_path))


def test_a_sink_that_is_gone_and_cannot_take_back_is_refused_too():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
    restore(run.run.checkpoints, 1)
    with pytest.raises(StateError, match="lacks the sink 'out'"):
        MemoryRun(program.job(sink="elsewhere"))


def test_output_to_retract_can_be_left_in_place(abandoned, tmp_path):
    with MemoryRun(abandoned.job(sink="elsewhere"), drop_unpublished=["out"]) as run:
        run.batch(rows(5))
    with MemoryRun(abandoned.job(sink="another")):
        pass
    assert len(lines(tmp_path)) == 3


def test_output_of_a_sink_that_the_program_has_can_be_left_in_place_too(abandoned, tmp_path):
    with MemoryRun(abandoned.job(), drop_unpublished=["out"]) as run:
        assert len(lines(tmp_path)) == 2
        run.batch(rows(5))
    with MemoryRun(abandoned.job()):
        pass
    assert len(lines(tmp_path)) == 3


def test_an_overtaken_run_does_not_take_back_the_output_of_its_successor(abandoned, tmp_path):
    run = JobRun(abandoned.job(), abandoned.job().plan())
    run.begin()
    with MemoryRun(abandoned.job(), take_over=True) as successor:
        successor.batch(rows(5))
        successor.batch(rows(6))
        there = lines(tmp_path)
        assert len(there) == 3
        # It was paused after its claim, and knows nothing of its successor.
        run.publish_left(None)
        assert lines(tmp_path) == there
    run.release()


def test_a_sink_that_cannot_retract_may_keep_void_output():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
    restore(run.run.checkpoints, 1)
    with pytest.raises(StateError, match="--drop-unpublished out"):
        MemoryRun(program.job())
    with MemoryRun(program.job(), drop_unpublished=["out"]) as run:
        run.batch(rows(2))
    assert program.values() == [1, 2]


def test_after_a_retraction_only_an_older_restore_needs_the_sink_again(abandoned, tmp_path):
    with MemoryRun(abandoned.job()) as run:
        pass
    restore(run.run.checkpoints, 3)
    with MemoryRun(abandoned.job(sink="elsewhere")) as run:
        pass
    restore(run.run.checkpoints, 1)
    with pytest.raises(StateError, match="lacks the sink 'out'"):
        MemoryRun(abandoned.job(sink="elsewhere"))
    with MemoryRun(abandoned.job()):
        assert lines(tmp_path) == []


def test_after_a_clean_stop_nothing_is_published_again():
    lines: list[int] = []

    def job() -> Job:
        made = Job("repeat", state=url, n_shards=4)
        made.source("in", lambda spark: None).sink("out", sinks.for_each(lambda row: lines.append(row["n"])))
        return made

    url = f"memory:unit-run-{next(_names)}"
    with MemoryRun(job()) as run:
        run.batch(rows(7))
    for _ in range(3):
        with MemoryRun(job()):
            pass
    assert lines == [7]


def test_after_a_clean_stop_sinks_may_be_renamed_and_changed(tmp_path):
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
    with MemoryRun(program.job(sink="renamed")) as run:
        run.batch(rows(2))
    program.out = sinks.files(str(tmp_path / "out"), format="json")
    with MemoryRun(program.job(sink="renamed")) as run:
        assert run.run.head.outputs == ()


def test_a_stop_is_recorded_only_where_output_is_owed():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        last = run.run.head.sequence
    assert (run.run.head.kind, run.run.head.published, run.run.head.outputs) == ("stop", last, ())
    with MemoryRun(program.job()) as run:
        run.batch({})
        last = run.run.head.sequence
    assert (run.run.checkpoints.latest().sequence, run.run.checkpoints.latest().kind) == (last, "claim")


def test_a_run_that_failed_to_publish_records_nothing():
    program = Program()
    with MemoryRun(program.job()) as run:
        faults.arm("publish.before-sink=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(1))
        faults.arm("")
    assert run.run.checkpoints.latest().kind == "batch"


def test_a_run_that_failed_later_records_its_last_publication():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        run.run.recall()
    assert run.run.checkpoints.latest().kind == "stop"


def test_unpublished_output_is_published_before_the_next_commit():
    program = Program()
    with MemoryRun(program.job()) as run:
        faults.arm("publish.before-sink=raise")
        with pytest.raises(InjectedFault):
            run.batch(rows(1))
        faults.arm("")
        run.batch(rows(2))
    assert program.values() == [1, 3]


def test_a_restore_after_a_clean_stop_owes_nothing():
    program = Program()
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
        batch = run.run.head.sequence
    restored = restore(run.run.checkpoints, batch)
    assert restored.outputs == ()


def test_a_commit_that_an_overtaken_run_makes_during_a_claim_is_continued(tmp_path, monkeypatch):
    def job(folder: str, **aggregates) -> Job:
        job = Job("program", state=f"file://{tmp_path}/{folder}", n_shards=4)
        orders = job.source("in", lambda spark: None).key_by("k", "user")
        orders.aggregate("totals", **aggregates).sink("out", collect())
        return job

    with MemoryRun(job("first", orders=agg.count(), cents=agg.sum("n"))) as run:
        run.batch(rows(100))

    def claim_late(*given):
        shutil.copytree(tmp_path / "first" / "program", tmp_path / "state" / "program", dirs_exist_ok=True)
        return claim(*given)

    monkeypatch.setattr(job_run, "claim", claim_late)
    # Stored numbers of aggregates keep the order of the program that wrote them first.
    with MemoryRun(job("state", cents=agg.sum("n"), orders=agg.count())) as run:
        run.batch(rows(7))
    state = StoredJob("program", state=f"file://{tmp_path}/state")
    assert dict(state.scan("totals")) == {"a": {"cents": 107, "orders": 2}}


def test_the_clock_of_batches_never_goes_back():
    program = Program()
    clock = Clock()
    with MemoryRun(program.job(), clock=clock) as run:
        seen = []
        for clock.now in (100, 50, 200):
            run.batch(rows(1))
            seen.append(run.run.head.now)
    assert seen == [100, 100, 200]


def test_old_checkpoints_are_removed_and_the_job_continues():
    program = Program(keep=2, collect_every=3)
    with MemoryRun(program.job()) as run:
        for _ in range(10):
            run.batch(rows(1))
        assert run.run.checkpoints.count() <= 5
    with MemoryRun(program.job()) as run:
        run.batch(rows(1))
    assert program.values()[-1] == 11


def test_parallelism_may_differ_from_run_to_run_and_is_at_most_the_shards():
    program = Program()
    for parallelism in (1, 3, 4, 9, 2):
        with MemoryRun(program.job(), parallelism=parallelism) as run:
            run.batch({"in": [{"user": user, "n": 1} for user in "abcdefgh"]})
            assert run.run.head.parallelism == min(parallelism, 4)
    found = states(run.run.store, run.run.head)["sum"]
    assert found == dict.fromkeys("abcdefgh", b"\x05")


def test_a_parallelism_that_an_earlier_rescale_overrides_is_reported():
    program = Program()
    with MemoryRun(program.job()) as run:
        assert run.run.overridden(4) is None
    program.job().rescale(2)
    with MemoryRun(program.job()) as run:
        assert "it runs with 2 tasks, not 4: it was rescaled" in run.run.overridden(4)
        assert "tidewheel rescale program 4" in run.run.overridden(4)
        assert run.run.overridden(2) is run.run.overridden(None) is None
