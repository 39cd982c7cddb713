"""A start that talks, an idle that does not: what `tidewheel run` shows on a terminal, and where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tidewheel._spark.driver import Driver
from tidewheel._spark.options import RunOptions

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

def run(self, *, progress, on_phase, on_readers, **options):
    for phase in ("checking", "Spark", "hosts", "claiming", "rebuilding", "first batch"):
        on_phase(phase)
        print("a word to stderr", file=sys.stderr) if phase == "hosts" else None
        threading.Event().wait(0.15)
    on_readers({{"in": "arrow"}})
    on_phase(None)
    for number in range(40):
        progress(BatchProgress(number + 2, number, 1000, 10, 0.5, 1.0, 2))
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


def on_a_terminal(script: str) -> str:
    leader, terminal = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "110", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    data = b""
    while True:
        try:
            data += os.read(leader, 65536)
        except OSError:  # The other end is closed.
            break
    os.close(leader)
    process.wait()
    return data.decode()


@pytest.fixture
def program(tmp_path) -> str:
    path = tmp_path / "clicks.py"
    path.write_text(PROGRAM)
    return str(path)


def test_on_a_terminal_a_spinner_tells_the_phases_and_one_line_the_batches(program):
    text = on_a_terminal(RUN.format(program=program, end=""))
    for phase in ("checking", "Spark", "hosts", "claiming", "rebuilding", "first batch"):
        assert re.search(rf"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] .*starting: {phase}, \d+ s", text), phase
    assert "batch 39: 1,000 rows, 2,000 rows/s" in text
    shown = screen(text)
    assert [line.partition(" ")[0] for line in shown] == ["clicks:", "a", "source", "started", "clicks:"]
    assert re.search(
        r"started in .* s: checking .*, Spark .*, hosts .*, claiming .*, rebuilding .*, first batch", shown[3]
    )
    assert "done; 40 batches, 40,000 rows in" in shown[4]


def test_an_error_on_a_terminal_leaves_no_line_behind(program):
    shown = screen(on_a_terminal(RUN.format(program=program, end="raise ValueError('broken')")))
    assert shown[-1].startswith("error: ValueError: broken")
    assert not [line for line in shown if line.startswith("batch")]


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


def test_each_phase_is_told_once():
    told: list[str | None] = []
    driver = Driver.__new__(Driver)
    driver.options, driver.phase = RunOptions(on_phase=told.append), "checking"
    for phase in ("checking", "Spark", "Spark", "first batch", None, None):
        driver._enter(phase)
    assert told == ["checking", "Spark", "first batch", None]


def test_the_version_is_told_without_the_commands():
    script = "import sys; sys.argv = ['tidewheel', '--version']; from tidewheel._cli import main; main(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    version, modules = found.stdout.splitlines()
    assert version.startswith("tidewheel ")
    assert not {"typer", "rich", "msgspec", "pyarrow", "pyspark"} & set(modules.split())
