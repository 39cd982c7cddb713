"""The output of `tidewheel run`: progress during the start, nothing while idle, with and without a terminal."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import os
import re
import signal
import subprocess
import sys
import termios
import time

import pytest
from rich.console import Console

from tidewheel import BatchProgress, Job, RunOptions, RunResult, sinks, sources
from tidewheel._cli.progress import LineProgress
from tidewheel._engine.job_status import find, look, without_commit
from tidewheel._storage import open_store

PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("clicks", state="memory:clicks")
job.source("in", sources.iterable([1, 2, 3])).sink("out", sinks.discard())
"""
RUN = """
import sys, threading
from tidewheel import Job
from tidewheel._cli import main, run as run_command
from tidewheel._spark.progress import BatchProgress, RunResult

def run(self, *, options):
    for phase in ("checking", "Spark", "hosts", "claiming", "rebuilding", "first batch"):
        options.on_phase(phase)
        print("a word to stderr", file=sys.stderr) if phase == "hosts" else None
        threading.Event().wait(0.03)
    options.on_readers({{"in": "arrow"}})
    options.on_phase(None)
    for number in range(40):
        options.progress(BatchProgress(number + 2, number, 1000, 10, 0.5, 1.0, 2))
    {end}
    return RunResult(self.name, 41, 40_000, [])

Job.run, run_command.start_early = run, lambda *_: None
sys.argv = ["tidewheel", "run", {program!r}]
main()
"""
_CODE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|\x1b\[\?\d+[a-z]|(\r\n|[\r\n])|([^\x1b\r\n]+)")


def screen(text: str) -> list[str]:
    """Return what a terminal shows in the end: the lines, with what was erased or written over gone."""
    lines, row, column = [""], 0, 0
    for number, code, end, plain in (match.groups() for match in _CODE.finditer(text)):
        if code == "A":
            row = max(0, row - int(number or 1))
        elif code == "K":
            lines[row] = ""
        elif end == "\r":
            column = 0
        elif end:
            row, column = row + 1, 0
            lines += [""] * (row - len(lines) + 1)
        elif plain:
            before = lines[row].ljust(column)
            lines[row] = before[:column] + plain + before[column + len(plain) :]
            column += len(plain)
    return [line.rstrip() for line in lines if line.strip()]


def own_terminal() -> None:
    """Make standard input the terminal of this process; whoever runs the tests in the background lets it ignore Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_a_terminal(
    *command: str, interrupted_at: bytes | None = None, terminated_at: bytes | None = None
) -> tuple[str, int]:
    """Run Python on a terminal of its own; return all that it wrote there, and its status.

    With `interrupted_at`, Ctrl-C is typed when the terminal shows that; with `terminated_at`, all its processes get a SIGTERM.
    """
    leader, terminal = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "110", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(terminal)
    data = b""
    while True:
        try:
            data += os.read(leader, 65536)
        except OSError:  # The other end is closed.
            break
        if interrupted_at is not None and interrupted_at in data:
            os.write(leader, b"\x03")
            interrupted_at = None
        if terminated_at is not None and terminated_at in data:
            os.killpg(process.pid, signal.SIGTERM)
            terminated_at = None
    os.close(leader)
    return data.decode(), process.wait()


@pytest.fixture
def program(tmp_path) -> str:
    path = tmp_path / "clicks.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_terminal_shows_a_spinner_for_phases_and_one_line_per_batch(program):
    text, _ = on_a_terminal("-c", RUN.format(program=program, end=""))
    for phase in ("checking", "Spark", "hosts", "claiming", "rebuilding", "first batch"):
        assert re.search(rf"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] .*starting: {phase}, \d+ s", text), phase
    assert "batch 39: 1,000 rows, 2,000 rows/s" in text
    shown = screen(text)
    assert [line.partition(" ")[0] for line in shown] == ["clicks:", "a", "source", "started", "clicks:"]
    assert re.search(
        r"started in .* s: checking .*, Spark .*, hosts .*, claiming .*, rebuilding .*; first batch .* s", shown[3]
    )
    assert re.search(
        r"done; 40 batches, 40,000 rows in [0-9.]+ s \([0-9,]+ rows/s\), after a start of [0-9.]+ s, at", shown[4]
    )


def test_an_error_on_a_terminal_leaves_no_line_behind(program):
    text, _ = on_a_terminal("-c", RUN.format(program=program, end="raise ValueError('broken')"))
    shown = screen(text)
    assert shown[-1].startswith("error: ValueError: broken")
    assert not [line for line in shown if line.startswith("batch")]


def test_ctrl_c_while_the_program_is_loaded_ends_in_one_line(program):
    with open(program, "a") as file:
        file.write("import threading; print('loading', flush=True); threading.Event().wait()\n")
    text, status = on_a_terminal("-m", "tidewheel", "run", program, interrupted_at=b"loading")
    assert status == 0
    assert "^Cstopped before the run began" in text
    assert "Traceback" not in text


def test_ctrl_c_while_a_run_releases_its_resources_is_an_abort(program):
    text, status = on_a_terminal("-c", RUN.format(program=program, end="raise KeyboardInterrupt"))
    assert status == 130, text
    assert "Traceback" not in text
    assert "before the run began" not in text


def test_ctrl_c_while_spark_starts_ends_in_order(program):
    text, status = on_a_terminal("-m", "tidewheel", "run", program, interrupted_at=b"starting: Spark")
    assert status == 0, text
    assert "Traceback" not in text
    assert "stopping before the start goes further; press Ctrl-C again to abort" in text
    assert "clicks: stopped as asked, start again to continue; 0 batches" in screen(text)[-1]
    assert "incubator" not in text


def test_a_start_whose_jvm_gets_the_signal_too_ends_in_order(program):
    # So `timeout` does, and a service manager.
    text, status = on_a_terminal("-m", "tidewheel", "run", program, terminated_at=b"starting: hosts")
    assert status == 0, text
    assert "error" not in text
    assert "clicks: stopped as asked, start again to continue; 0 batches" in screen(text)[-1]


def test_a_signal_is_for_the_run_again_as_soon_as_spark_has_started(spark, tmp_path, monkeypatch):
    taken = []

    def session(*_):
        # Spark does so in the main thread, also where a run starts it anew.
        signal.signal(signal.SIGINT, lambda *_: taken.append("by Spark"))
        return spark

    monkeypatch.setattr("tidewheel._spark.driver.session", session)
    job = Job("clicks", state=f"file://{tmp_path}/state", n_shards=2)
    job.source("in", sources.iterable([1, 2, 3])).sink("out", sinks.discard())
    before = signal.getsignal(signal.SIGINT)
    result = job.run(
        until="caught-up",
        options=RunOptions(
            local=str(tmp_path / "local"),
            on_phase=lambda phase: signal.raise_signal(signal.SIGINT) if phase == "hosts" else None,
        ),
    )
    assert (result.stopped, taken) == (True, [])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_can_be_stopped_at_every_phase_of_its_start(spark, tmp_path):
    job = Job("clicks", state=f"file://{tmp_path}/state", n_shards=2)
    out: list = []
    job.source("in", sources.iterable([1, 2, 3])).sink("out", sinks.collect(out))
    options = RunOptions(spark=spark, local=str(tmp_path / "local"), until="caught-up")
    for phase in ("checking", "Spark", "hosts", "claiming", "rebuilding", "first batch"):
        told: list[str | None] = []

        def on_phase(entered: str | None, at: str = phase, told: list[str | None] = told) -> None:
            told.append(entered)
            if entered == at:
                os.kill(os.getpid(), signal.SIGINT)

        result = job.run(options=dataclasses.replace(options, on_phase=on_phase))
        assert (result.stopped, result.batches, out) == (True, [], []), phase
        assert told[-1] == phase or phase == "first batch"
    assert len(job.run(options=options).batches) == 1
    assert [record["value"] for record in out] == [1, 2, 3]


def test_the_start_has_one_duration_in_all_lines_and_few_rows_no_rate(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    progress = LineProgress(Console(file=out, width=200, highlight=False))
    for phase, seconds in (("checking", 5.0), ("Spark", 30.0), ("first batch", 16.0), (None, 1.0)):
        now[0] += 0.5 if phase == "checking" else 0.0
        progress.phase(phase)
        now[0] += seconds
    progress.batch(BatchProgress(2, 0, 2, 2, 16.0, 12.0, 1))
    progress.ended(RunResult("repl", 3, 2, [], False))
    lines = out.getvalue().splitlines()
    assert "started in 35.0 s: checking 5.0, Spark 30.0; first batch 16.0 s" in lines
    assert lines[-1] == "repl: done; 1 batch, 2 rows in 17.0 s, after a start of 35.0 s, at sequence 3"


@pytest.mark.parametrize(
    ("result", "last"),
    [
        (
            RunResult("shop", 3, 2, [], False, 1_772_355_600 * 10**9, ("hours", "paid")),
            "open in hours, paid: results that end after 2026-03-01 09:00:00 UTC, the clock of the data; newer records advance "
            "the clock, and --until end emits all results",
        ),
        (
            RunResult("shop", 3, 2, [], False, None, ("paid",)),
            "open in paid: all results, because the clock of the data waits for the first timestamp of each input; tidewheel "
            "status shop names these inputs, and --until end does not wait for them",
        ),
        (
            RunResult("shop", 3, 2, [], late={"hours": 21}),
            "21 messages came too late for hours, and no step reads them: give its late stream a sink",
        ),
        (RunResult("shop", 3, 2, [], True, None, ("paid",)), "shop: stopped as asked"),
        (RunResult("shop", 3, 0, [], False, None, ("paid",)), "shop: done"),
    ],
    ids=["open", "no clock yet", "late", "stopped", "no data"],
)
def test_the_end_of_a_run_reports_open_results_and_late_messages(result, last):
    out = io.StringIO()
    LineProgress(Console(file=out, width=400, highlight=False)).ended(result)
    assert out.getvalue().splitlines()[-1].startswith(last)


def test_without_a_terminal_there_is_a_plain_line_for_each_phase_and_batch(program):
    script = RUN.format(program=program, end="")
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = found.stdout.splitlines()
    phases = ["checking", "Spark", "hosts", "claiming", "rebuilding", "first batch"]
    assert lines[1:7] == [f"starting: {phase}" for phase in phases]
    assert lines[7] == "source in: reader: arrow"
    assert lines[8].startswith("started in ")
    assert sum(line.startswith("batch ") for line in lines) == 40
    assert "\x1b" not in found.stdout


def test_a_first_start_and_its_failure_are_visible_from_outside(spark, tmp_path):
    job = Job("clicks", state=f"file://{tmp_path}/state", n_shards=2)
    job.source("in", sources.iterable([1, 2, 3])).sink("out", sinks.discard())
    store, told = open_store(job.state), {}

    def on_phase(phase: str | None) -> None:
        told[phase] = without_commit(store, "clicks")
        if phase == "claiming":
            raise ValueError("not this time")

    with pytest.raises(ValueError, match="not this time"):
        job.run(until="caught-up", options=RunOptions(spark=spark, local=str(tmp_path / "local"), on_phase=on_phase))
    assert told["checking"] is None, "nothing is taken yet"
    for phase in ("Spark", "hosts", "claiming"):
        assert told[phase].startswith("job 'clicks' is starting on ")
    assert "job 'clicks' failed while it was starting on " in without_commit(store, "clicks")
    assert look(*find(store, "clicks")).error == "not this time"


def test_the_version_is_shown_without_the_commands():
    script = "import sys; sys.argv = ['tidewheel', '--version']; from tidewheel._cli import main; main(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    version, modules = found.stdout.splitlines()
    assert version.startswith("tidewheel ")
    assert not {"typer", "rich", "msgspec", "pyarrow", "pyspark"} & set(modules.split())
