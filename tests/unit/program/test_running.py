"""Run: the handle on a job that runs in the background, with a stand-in for the driver; tests/acceptance uses Spark."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import tidewheel
from support.waiting import IN_TIME, SOON
from tidewheel import BatchProgress, Job, Run, RunOptions, RunResult, StoredJob
from tidewheel._program.running import in_background, in_this_thread, run_on_spark
from tidewheel.errors import ConfigError, GraphError, HeldError, NotFound, StepError
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

BATCH = BatchProgress(2, 0, 250, 10, 0.5, 12.4, 2)


class Driver:
    """Runs until it is stopped, or fails when it is told to."""

    def __init__(self, error: BaseException | None = None):
        self.phase: str | None = "Spark"
        self.error = error
        self.executing = threading.Event()
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None

    def progress(self):
        return [BATCH]

    def execute(self):
        self.thread = threading.current_thread()
        self.executing.set()
        self.stopped.wait()
        if self.error is not None:
            raise self.error
        return RunResult("clicks", 2, 250, [BATCH], stopped=True)

    def stop(self):
        self.stopped.set()


def job(state: str = "memory:unit-running") -> Job:
    made = Job("clicks", state=state)
    made.source("in", iterable([1, 2])).map("double", lambda n: 2 * n).sink("out", discard())
    return made


def running(driver: Driver) -> Run:
    run = in_background(Run(job(), lambda: driver))
    assert driver.executing.wait(SOON)
    return run


def test_the_status_goes_from_starting_to_running_to_stopped():
    driver = Driver()
    run = running(driver)
    assert (run.status.state, run.status.phase, str(run.status)) == ("starting", "Spark", "starting: Spark")
    driver.phase = None
    assert str(run.status) == "running"
    run.stop()
    assert run.wait(IN_TIME).stopped
    assert str(run.status) == "stopped"


def test_a_second_start_in_the_same_process_is_refused_at_once():
    run = running(Driver())
    with pytest.raises(HeldError, match=r"a run of this process; .*StoredJob\('clicks', state='memory:unit-running'\)"):
        job().start()
    run_on_spark(job(), RunOptions(take_over=True))
    run_on_spark(job("memory:unit-running-elsewhere"), RunOptions())
    run.stop()
    run_on_spark(job(), RunOptions())  # It waits for the one that ends.
    run.wait(IN_TIME)


def test_before_the_driver_exists_the_run_is_checking_and_can_be_stopped():
    there = threading.Event()
    driver = Driver()

    def make() -> Driver:
        there.wait()
        return driver

    run = in_background(Run(job(), make))
    assert (str(run.status), run.progress) == ("starting: checking", [])
    run.stop()
    there.set()
    assert run.wait(IN_TIME).stopped


def test_a_failure_is_the_status_and_is_raised_by_every_wait():
    error = StepError("step 'double': it failed")
    driver = Driver(error)
    run = running(driver)
    driver.stop()
    for _ in range(2):
        with pytest.raises(StepError, match="it failed"):
            run.wait(IN_TIME)
    assert run.status.error is error
    assert str(run.status) == "failed: StepError: step 'double': it failed"


def test_waiting_has_a_time_limit_and_the_run_continues():
    driver = Driver()
    with running(driver) as run:
        with pytest.raises(TimeoutError, match=r"job 'clicks' has not ended within 0\.01 s; it is starting: Spark"):
            run.wait("0.01 s")
        assert not driver.stopped.is_set()


def test_leaving_the_block_stops_and_waits():
    driver = Driver()
    with running(driver) as run:
        assert run.progress == [BATCH]
    assert driver.stopped.is_set()
    assert run.status.state == "stopped"


def test_leaving_the_block_raises_the_error_of_the_run():
    with pytest.raises(StepError, match="it failed"), running(Driver(StepError("it failed"))):
        pass


def test_an_error_in_the_block_is_not_hidden_by_one_of_the_run():
    driver = Driver(StepError("it failed"))
    with pytest.raises(KeyError), running(driver):
        raise KeyError("mine")
    assert driver.stopped.is_set()


def test_running_to_the_end_stays_in_the_thread_that_asked():
    driver = Driver()
    driver.stop()
    assert in_this_thread(Run(job(), lambda: driver)).sequence == 2
    assert driver.thread is threading.current_thread()


def test_a_run_is_stopped_when_the_program_ends():
    program = (
        "import threading\n"
        "from tidewheel import Job, RunResult, Run\n"
        "from tidewheel._program.running import in_background\n"
        "class Driver:\n"
        "    phase, asked = None, threading.Event()\n"
        "    def execute(self):\n"
        "        self.asked.wait()\n"
        "        print('committed', flush=True)\n"
        "        return RunResult('j', 1, 0, [])\n"
        "    def stop(self):\n"
        "        self.asked.set()\n"
        "in_background(Run(Job('j', state='memory:j'), Driver))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SOON)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "committed\n", "")


def test_a_notebook_shows_a_run_escaped_and_without_passwords():
    driver = Driver(StepError("<script>alert(1)</script>"))
    run = in_background(Run(job("nats://ada:secret@host:4222/<b>"), lambda: driver))
    driver.stop()
    with pytest.raises(StepError):
        run.wait(IN_TIME)
    shown = run._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "/&lt;b&gt;" in shown
    assert "secret" not in shown
    assert "double  map &lt;- in" in shown
    assert "<td>0</td><td>2</td><td>250</td><td>10</td><td>0.50</td><td>12</td>" in shown


def test_start_refuses_wrong_graphs_arguments_and_triggers_at_once():
    with pytest.raises(GraphError, match="no source"):
        Job("empty", state="memory:unit-running").start()
    with pytest.raises(TypeError, match="parallelsim"):
        job().start(parallelsim=2)
    with pytest.raises(GraphError, match="every cannot be read from 'continuous'"):
        job().start(every="continuous")
    with pytest.raises(GraphError, match=r"every is 5, a number without a unit; write '5 s'"):
        job().start(every=5)
    with pytest.raises(
        ConfigError, match=r"until must be 'caught-up' or 'end', not 'caught_up'; did you mean 'caught-up'"
    ):
        job().start(until="caught_up")
    with pytest.raises(
        ConfigError, match=r"until='end' reads all available data and ends, so every='5 s' has no effect"
    ):
        job().start(until="end", every="5 s")
    with pytest.raises(
        ConfigError, match=r"options is a RunOptions, such as RunOptions\(restarts=5\), not \{'restarts': 5\}"
    ):
        job().start(options={"restarts": 5})


def test_a_result_and_a_batch_are_one_line_each():
    assert str(BATCH) == (
        "batch 0, sequence 2: 250 rows in 0.50 s (500 rows/s), 10 keys changed, commit 12 ms, 2 tasks"
    )
    assert str(BatchProgress(3, None, 0, 7, 0.0, 3.0, 1, rejected=1, kind="flush")) == (
        "flush, sequence 3: 0 rows in 0.00 s (0 rows/s), 7 keys changed, commit 3 ms, 1 task, 1 rejected"
    )
    assert str(RunResult("clicks", 3, 250, [])) == "clicks: done at sequence 3, 250 events since its first start"
    assert tidewheel.Run is Run


def test_a_query_before_the_first_commit_reports_a_starting_run():
    made = Job("clicks", state="memory:unit-running-query")
    made.source("in", iterable([1, 2])).key_by("by", lambda n: n).reduce("sum", max).sink("out", discard())
    driver = Driver()
    with in_background(Run(made, lambda: driver)) as run:
        assert driver.executing.wait(60)
        with pytest.raises(
            NotFound,
            match=r"is starting \(at: Spark\), and nothing is committed yet: ask again when `run\.status\.state`",
        ):
            run.query("sum", 1)
        driver.phase = None
        with pytest.raises(NotFound, match="there is no checkpoint"):
            run.query("sum", 1)


@pytest.mark.parametrize("tasks", [0, -1, "2", 1.5])
def test_a_number_of_tasks_that_cannot_be_is_refused_before_the_start(tasks):
    with pytest.raises(ConfigError, match="parallelism must be a whole number from 1, or 'auto', not"):
        job_of_one_source().run(parallelism=tasks)


def job_of_one_source() -> Job:
    made = Job("unit", state="memory:unit-parallelism")
    made.source("in", iterable([1])).sink("out", discard())
    return made


def test_the_place_of_a_job_is_that_of_the_folder_in_which_it_was_made(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Job("unit", cells="cells")
    made.source("in", iterable([]), type=dict).key_by("by", "user").stateful_map(
        "seen", lambda user, record, seen: (None, seen + 1), default=0
    ).sink("out", discard())
    monkeypatch.chdir(tmp_path / "elsewhere")
    with MemoryRun(made) as run:
        run.batch({"in": [{"user": "ada"}]})
    assert made.query("seen", "ada").value == 1
    assert (made.state, made.cells_at) == (f"file://{tmp_path}/.tidewheel", f"file://{tmp_path}/cells")
    assert not list((tmp_path / "elsewhere").iterdir())
    monkeypatch.chdir(tmp_path)
    assert StoredJob("unit").get("seen", "ada").value == 1
