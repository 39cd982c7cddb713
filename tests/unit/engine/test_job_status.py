"""The status of a job seen from outside, and the order to stop one run of it."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time

import msgspec
import pytest
from typer.testing import CliRunner

from support.internals import app, open_store
from support.waiting import SOON
from tidewheel import Job, StoredJob, cells
from tidewheel._checkpoint.fleet_ledger import FleetLedger
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._cli.status import lines
from tidewheel._engine.control import order_stop, rescale
from tidewheel._engine.job_lease import Holder, JobLease, LeaseState, this_process
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.job_status import find, look, status_of, stop
from tidewheel._observe.records import Behind, CommitRecord
from tidewheel._observe.run_history import RunHistory
from tidewheel._time.duration import MAX_TIME
from tidewheel._time.frontier import Frontier
from tidewheel.checkpoints import CheckpointId, CheckpointStore, Manifest
from tidewheel.errors import NotFound, StateError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_names = itertools.count()
SECOND = 10**9
NEWEST = Manifest(CheckpointId("job", 7, 100 * SECOND), event_count=1234, epoch=40 * SECOND, parallelism=2)
HOLDER = Holder("token", "host", "boot", 12, 100, 0.0, 15.0, since=50 * SECOND)
FREE = LeaseState(None, False)


@pytest.fixture
def job() -> Job:
    made = Job("job", state=f"memory:unit-job-status-{next(_names)}")
    made.source("in", lambda spark: None).sink("out", collect())
    return made


def place(job: Job) -> JobPlace:
    return JobPlace(job.name, job.state)


def newest(job: Job) -> Manifest:
    return StoredJob(job.name, state=job.state).show()


def test_the_status_shows_place_start_progress_and_lag():
    status = status_of(NEWEST, LeaseState(HOLDER, True), 103 * SECOND)
    assert (status.running, status.host, status.pid, status.run, status.since) == (
        True,
        "host",
        12,
        "token",
        50 * SECOND,
    )
    assert (status.sequence, status.events, status.age_seconds, status.behind_seconds) == (7, 1234, 3.0, 63.0)
    assert lines(status) == [
        "job: runs on host, process 12 since 1970-01-01 00:00:50 UTC",
        "last commit: 7, at 1970-01-01 00:01:40 UTC, 3.0 s ago; 1,234 events so far, 2 tasks",
        "state: 0 B, the files of the last commit",
        "behind: –",
        "clock of the data: 1970-01-01 00:00:40 UTC, 0:01:03 behind the time of day",
    ]


def test_the_backlog_of_a_run_is_shown_as_last_seen(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
        history = RunHistory(open_store(job.state), job.name, run.run.token, keep_seconds=60)
        history.committed(CommitRecord(2, 1, run=run.run.token, behind={"in": {"f": Behind(0, 3.0, 2)}}))
        history.close()
        status = look(place(job), newest(job))
        assert not [line for line in lines(status) if line.startswith("last batch")]
        assert (status.rows_waiting, status.files_waiting, status.waiting_seconds) == (None, 2, 3.0)
        assert "behind: 2 files not read yet, the oldest for 3.0 s" in lines(status)
        history = RunHistory(open_store(job.state), job.name, run.run.token, keep_seconds=60)
        history.waited({"in": {"f": Behind(0, 0.0, 0)}})
        history.close()
        assert "behind: 0 files not read yet" in lines(look(place(job), newest(job)))
    # It waits for a run, not for the job: what came since the end is not known.
    assert look(place(job), newest(job)).files_waiting is None


def test_the_status_shows_where_the_last_batch_ran(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
        history = RunHistory(open_store(job.state), job.name, run.run.token, keep_seconds=60)
        history.committed(CommitRecord(2, 1, run=run.run.token, ran_in="tasks of Spark, with a shuffle"))
        history.close()
    assert "last batch: ran in tasks of Spark, with a shuffle" in lines(look(place(job), newest(job)))


def test_the_status_names_a_held_back_source_and_its_lead():
    job = Job("job", state=f"memory:unit-job-status-{next(_names)}", align="1 minute")
    for name in ("archive", "live"):
        timed = job.source(name, lambda spark: None).event_time("at", unit="ns", max_delay="0 s", name=f"{name}-clock")
        timed.sink(f"{name}-out", collect())
        timed.late.sink(f"{name}-late", collect())
    with MemoryRun(job) as run:
        run.batch({"archive": [{"at": 10 * SECOND}], "live": [{"at": 7270 * SECOND}]})
        history = RunHistory(open_store(job.state), job.name, run.run.token, keep_seconds=60)
        history.waited({"archive": {"f": Behind(0, 0.0, 2)}, "live": {"t/0": Behind(5)}})
        history.close()
        status = look(place(job), newest(job))
        assert status.held_back == {"live": (7260.0, "archive")}
        assert "held back: live, 2:01:00 ahead of archive" in lines(status)
        history = RunHistory(open_store(job.state), job.name, run.run.token, keep_seconds=60)
        history.waited({"archive": {"f": Behind(0, 0.0, 0)}, "live": {"t/0": Behind(5)}})
        history.close()
        assert look(place(job), newest(job)).held_back == {}


def test_the_inputs_that_hold_the_clock_back_are_named():
    one = NEWEST.replace(frontiers={"orders": Frontier(40 * SECOND)})
    assert len(lines(status_of(one, FREE, 103 * SECOND))) == 4
    two = NEWEST.replace(frontiers={"orders": Frontier(90 * SECOND), "payments": Frontier(40 * SECOND)})
    assert lines(status_of(two, FREE, 103 * SECOND))[-1] == (
        "inputs of the clock, the furthest behind first: payments 1970-01-01 00:00:40, orders 1970-01-01 00:01:30"
    )
    ended = NEWEST.replace(frontiers={"orders": Frontier(40 * SECOND), "payments": Frontier(MAX_TIME)})
    assert status_of(ended, FREE, 103 * SECOND).clock_inputs == {"orders": 40 * SECOND}
    silent = NEWEST.replace(epoch=None, frontiers={"orders": Frontier(90 * SECOND), "payments": Frontier(None, 5)})
    assert lines(status_of(silent, FREE, 103 * SECOND))[-1] == (
        "no timestamp yet at: payments; the clock of the data waits for it until it counts as idle"
    )


@pytest.mark.parametrize(
    ("frontiers", "told"),
    [
        (
            {"orders": 40, "refunds": None},
            ["inputs of the clock, the furthest behind first: orders 1970-01-01 00:00:40"],
        ),
        (
            {"orders": 90, "refunds": 10, "payments": 40},
            [
                "inputs of the clock, the furthest behind first: payments 1970-01-01 00:00:40, orders 1970-01-01 00:01:30"
            ],
        ),
        ({"orders": 90, "refunds": None}, ["no timestamp yet at: refunds"]),
        (
            {"orders": 90, "refunds": 10},
            ["inputs of the clock, the furthest behind first: refunds 1970-01-01 00:00:10"],
        ),
        ({"orders": 10, "refunds": None}, []),
    ],
    ids=["idle from the first", "idle since long", "new", "back", "all idle"],
)
def test_status_names_the_inputs_that_hold_the_clock_back(frontiers, told):
    times = {name: Frontier(None if time is None else time * SECOND) for name, time in frontiers.items()}
    assert lines(status_of(NEWEST.replace(frontiers=times), FREE, 103 * SECOND))[4:] == told


def test_status_reports_a_stopped_job_and_a_missing_clock():
    status = status_of(NEWEST.replace(epoch=None), FREE, 103 * SECOND)
    assert (status.running, status.host, status.epoch, status.behind_seconds) == (False, None, None, None)
    assert lines(status)[0] == "job: does not run"
    assert len(lines(status)) == 3


def test_after_a_bounded_run_no_clock_can_be_late():
    assert status_of(NEWEST.replace(epoch=MAX_TIME), FREE, 103 * SECOND).behind_seconds is None


def test_a_job_ended_by_a_bounded_run_is_shown_as_ended():
    assert status_of(NEWEST, FREE, 103 * SECOND).final_commit is None
    status = status_of(NEWEST.replace(flushed=6, epoch=MAX_TIME), FREE, 103 * SECOND)
    assert status.final_commit == 6
    assert lines(status)[-1].startswith(
        "ended for good: a bounded run closed all windows with commit 6, and no run can add"
    )


def test_a_holder_of_an_earlier_version_has_no_time_since_when():
    earlier = {name: value for name, value in msgspec.structs.asdict(HOLDER).items() if name != "since"}
    assert status_of(NEWEST, LeaseState(msgspec.convert(earlier, Holder), True), 103 * SECOND).since is None


def test_a_run_is_seen_while_it_has_the_job(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
        status = look(place(job), newest(job))
        assert (status.running, status.host, status.pid) == (True, socket.gethostname(), os.getpid())
        assert (status.run, status.events) == (run.run.token, 1)
        assert StoredJob("job", state=job.state).status().run == status.run
    assert not look(place(job), newest(job)).running


def test_a_stop_request_is_for_one_run_and_survives_a_rescale(job):
    with MemoryRun(job) as first, cells.open(job.cells_url) as connection:
        assert not first.run.cells.stop_ordered(first.run.token)
        order_stop(connection, first.run.token)
        rescale(job.cells_url, 2)
        assert first.run.cells.stop_ordered(first.run.token)
    with MemoryRun(job) as second:
        assert not second.run.cells.stop_ordered(second.run.token)


def test_an_unreadable_stop_request_is_ignored(job):
    with MemoryRun(job) as run, cells.open(job.cells_url) as connection:
        connection.writer("stop", int, namespace="job", type_name="tidewheel.StopOrder").write(7)
        assert not run.run.cells.stop_ordered(run.run.token)


def test_a_stored_job_stops_the_run_that_has_it(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
        stored = StoredJob("job", state=job.state)
        assert not stored.stop("1 ms")
        assert run.run.cells.stop_ordered(run.run.token)
    assert stored.stop()


def test_stop_waits_until_the_run_has_released_the_job(job):
    began = threading.Event()

    def run_until_told() -> None:
        with MemoryRun(job) as run:
            began.set()
            while not run.run.cells.stop_ordered(run.run.token):
                threading.Event().wait(0.01)

    thread = threading.Thread(target=run_until_told)
    thread.start()
    assert began.wait(SOON)
    holder, ended = stop(place(job), newest(job), 60)
    assert holder is not None
    assert ended
    thread.join()
    assert stop(place(job), newest(job), 60) == (None, True)


def test_stop_and_status_print_text_or_json_and_fail_if_the_run_stays(job, tmp_path):
    job.state = f"file://{tmp_path}"

    def call(*arguments: str):
        return CliRunner().invoke(app, [*arguments, "--state", job.state])

    with MemoryRun(job):
        assert "job: runs on" in call("status", "job").stdout
        assert json.loads(call("status", "job", "--json").stdout)["pid"] == os.getpid()
        asked = call("stop", "job", "--wait", "0 s")
        assert (asked.exit_code, "was asked to end" in asked.stdout) == (0, True)
        late = call("stop", "job", "--wait", "10 ms")
        assert (late.exit_code, "has not ended within 10 ms" in late.stderr) == (1, True)
    assert "job does not run" in call("stop", "job").stdout
    assert json.loads(call("stop", "job", "--json").stdout) == {"job": "job", "run": None, "ended": True}


def test_the_error_that_ended_a_run_is_shown_until_the_job_works_again(job, tmp_path):
    job.state = f"file://{tmp_path}"
    with MemoryRun(job) as run:
        run.batch({"in": [1]})
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.failed(ValueError("seven thousand"), 1)
        history.close()
    answer = CliRunner().invoke(app, ["status", "job", "--state", job.state]).stdout
    assert "job: does not run" in answer
    assert "last error, at " in answer
    assert "seven thousand" in answer
    with MemoryRun(job) as run:
        beside = CliRunner().invoke(app, ["status", "job", "--state", job.state]).stdout
        assert "job: runs on" in beside
        assert "last error, of an earlier run, at " in beside
        run.batch({"in": [2]})
        assert look(place(job), newest(job)).error is None
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.committed(CommitRecord(newest(job).sequence, newest(job).id.created_at, kind="flush"))
        history.close()
    assert look(place(job), newest(job)).error is None, "also when the newest commit is the end of that run"


def test_a_fleet_is_refused_with_the_command_to_use():
    with pytest.raises(StateError, match="tidewheel fleet status"):
        look(JobPlace("job", "memory:unit-job-status"), NEWEST.replace(fleet=FleetLedger()))


def test_a_regular_end_differs_from_a_crash(job):
    with MemoryRun(job) as run:
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.started((), 64, "1")
        run.batch({"in": [{"n": 1}]})
        assert look(place(job), newest(job)).ended is None
    history._writer.close()
    killed = look(place(job), newest(job))
    assert (killed.ended, lines(killed)[0]) == (
        "killed",
        "job: does not run: its last run did not record its end; was it killed?",
    )
    with MemoryRun(job) as run:
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.started((), 64, "1")
        history.close()
    assert look(place(job), newest(job)).ended == "stopped"


# Before the first commit, and after runs that did not end in order: the lease tells.


def starting(job: Job, phase: str | None = "Spark") -> JobRun:
    """Return a run that has taken its job's lease, and is at a phase of its start."""
    run = JobRun(job, job.plan())
    run.enter(phase)
    run.reserve()
    return run


def killed(job: Job, run: str = "dead", **told) -> None:
    """Leave the job's lease as a run does that this machine has killed."""
    with cells.open(job.cells_url) as connection:
        cell = connection.writer("holder", Holder, namespace="job", type_name="tidewheel.JobHolder")
        cell.write(msgspec.structs.replace(this_process(run, since=50 * SECOND), process_started=-1, **told))


def seen(job: Job):
    return look(*find(open_store(job.state), job.name))


def test_a_first_start_is_shown_before_there_is_a_commit(job):
    run = starting(job)
    status = seen(job)
    assert (status.running, status.sequence, status.pid, status.run, status.phase, status.ended) == (
        True,
        None,
        os.getpid(),
        run.token,
        "Spark",
        None,
    )
    first, second = lines(status)
    assert first.startswith(f"job: is starting on {socket.gethostname()}, process {os.getpid()} since ")
    assert (first.endswith(" UTC, at: Spark"), second) == (True, "last commit: none yet")
    with pytest.raises(
        NotFound, match=r"job 'job' is starting on .* \(at: Spark\), and nothing is committed yet; ask again"
    ):
        StoredJob("job", state=job.state)
    run.release()
    with pytest.raises(NotFound, match="was not started there"):
        StoredJob("job", state=job.state)
    with pytest.raises(NotFound, match="was not started there"):
        find(open_store(job.state), "job")


def test_a_first_start_is_not_listed_with_jobs_that_have_checkpoints(job):
    run = starting(job)
    assert CheckpointStore(open_store(job.state)).streams() == []
    run.release()


def test_a_first_start_is_found_where_its_program_has_its_cells(job):
    job.cells_at = f"{job.state}-elsewhere"
    run = starting(job)
    assert (seen(job).running, seen(job).phase) == (True, "Spark")
    run.release()


def test_a_first_start_can_be_stopped(job):
    run = starting(job)
    holder, ended = stop(*find(open_store(job.state), "job"), 0)
    assert (holder.run, ended) == (run.token, False)
    assert run.cells.stop_ordered(run.token)
    run.release()


def test_a_killed_first_start_is_shown_and_does_not_block_the_next(job):
    killed(job, phase="hosts")
    status = seen(job)
    assert (status.running, status.ended) == (False, "killed")
    assert lines(status) == [
        f"job: does not run: it was killed while it was starting on {socket.gethostname()}, process {os.getpid()} since "
        "1970-01-01 00:00:50 UTC, at: hosts",
        "last commit: none yet",
    ]
    with pytest.raises(NotFound, match=r"job 'job' was killed while it was starting on .*; start it again"):
        StoredJob("job", state=job.state)
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
    assert seen(job).ended == "stopped"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_failed_first_start_shows_its_error_and_does_not_block_the_next(job, elsewhere, monkeypatch):
    if elsewhere:
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    run = starting(job)
    history = RunHistory(run.store, job.name, run.token, keep_seconds=3600.0)
    history.failed(ValueError("no such folder"))
    history.close()
    run.release(failed=True)
    monkeypatch.undo()
    status = seen(job)
    assert (status.running, status.ended, status.error) == (False, "failed", "no such folder")
    assert "it failed while it was starting on" in lines(status)[0]
    assert "no such folder" in lines(status)[-1]
    with cells.open(job.cells_url) as connection:
        now = time.monotonic()
        lease = JobLease(connection, "next", clock=lambda: now)
        lease.acquire("job")  # On a clock that stands still: it waits for nobody.
        lease.release()


def test_a_starting_job_with_commits_is_shown_as_starting(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
    again = starting(job, "Spark")
    assert lines(seen(job))[0].endswith("at: Spark")
    assert lines(seen(job))[1].startswith("last commit: ")
    again.release()


def test_a_run_without_history_is_shown_as_killed_failed_or_stopped(job):
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 1}]})
    assert seen(job).ended == "stopped"
    killed(job)
    assert lines(seen(job))[0] == "job: does not run: its last run did not record its end; was it killed?"
    starting(job, None).release(failed=True)
    assert (seen(job).ended, lines(seen(job))[0]) == ("failed", "job: does not run: it failed")


def test_a_run_without_history_does_not_show_the_end_of_an_earlier_run(job):
    with MemoryRun(job) as run:
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.started((), 64, "1")
        run.batch({"in": [{"n": 1}]})
    history._writer.close()
    assert seen(job).ended == "killed"
    with MemoryRun(job) as run:
        run.batch({"in": [{"n": 2}]})
    assert seen(job).ended == "stopped"


def test_a_run_killed_at_its_start_is_shown_as_killed(job):
    with MemoryRun(job) as run:
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.started((), 64, "1")
        run.batch({"in": [{"n": 1}]})
        history.close()
    killed(job, phase="Spark")
    assert (seen(job).ended, "killed while it was starting" in lines(seen(job))[0]) == ("killed", True)


def test_a_run_that_recorded_its_end_was_not_killed(job):
    with MemoryRun(job) as run:
        history = RunHistory(run.run.store, job.name, run.run.token, keep_seconds=3600.0)
        history.started((), 64, "1")
        run.batch({"in": [{"n": 1}]})
        history.close()
        token = run.run.token
    killed(job, token)
    assert seen(job).ended == "stopped"
