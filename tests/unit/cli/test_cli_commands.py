"""The command line: what it passes on, what it prints, how it fails."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.internals import app
from tidewheel import BatchProgress, Job, RunOptions, RunResult
from tidewheel._cli.progress import LineProgress
from tidewheel._cli.sinks import kinds
from tidewheel.errors import HeldError, StepError, UserTraceback
from tidewheel.sinks import __all__ as exported

PROGRAM = """
from tidewheel import Job
from tidewheel.sinks import discard
from tidewheel.sources import iterable

job = Job("clicks", state="memory:clicks")
job.source("in", iterable([1, 2, 3])).map("double", lambda n: 2 * n).sink("out", discard())
"""
BATCHES = [
    BatchProgress(2, 0, 250_000, 10_000, 0.5, 12.4, 2),
    BatchProgress(3, None, 0, 7, 0.0, 3.0, 2, rejected=1, kind="flush"),
]


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "clicks_of_the_cli.py"
    path.write_text(PROGRAM)
    yield str(path)
    sys.modules.pop("clicks_of_the_cli", None)
    sys.modules.pop("tidewheel_program_clicks_of_the_cli", None)


@pytest.fixture
def ran(monkeypatch):
    """Stands in for `Job.run`: keeps the options, tells two batches; a test may put an error in its way."""
    calls = {}

    def run(self, *, options):
        calls.update(vars(options), state=self.state)
        for callback in ("progress", "on_phase", "on_readers"):
            del calls[callback]
        if "error" in calls:
            options.on_phase("checking")
            raise calls["error"]
        for batch in BATCHES:
            options.progress(batch)
        return RunResult(self.name, 3, 250_000, BATCHES, calls.get("stopped", False))

    monkeypatch.setattr(Job, "run", run)
    monkeypatch.setattr("tidewheel._cli.run.start_early", lambda *_: None)
    return calls


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_without_a_terminal_each_batch_is_a_plain_line(program, ran):
    found = call("run", program)
    assert found.exit_code == 0
    lines = [" ".join(line.split()) for line in found.stdout.splitlines()]
    assert lines[1:3] == [
        "batch 0 250,000 rows 500,000 rows/s 10,000 keys changed 12 ms commit",
        "flush 0 rows 0 rows/s 7 keys changed 3 ms commit",
    ]
    assert lines[3] == "1 record went to the dead-letter sink"
    assert "done; 2 batches, 250,000 rows in" in lines[4]
    assert "\x1b" not in found.stdout


def test_a_closed_terminal_does_not_fail_a_run():
    leader, terminal = os.openpty()
    with os.fdopen(terminal, "w") as file:
        progress = LineProgress(Console(file=file, force_terminal=True))
        os.close(leader)
        progress.batch(BATCHES[0])
    assert progress.rows == 250_000


def test_a_json_object_per_batch_and_nothing_else(program, ran):
    found = [json.loads(line) for line in call("run", program, "--json").stdout.splitlines()]
    assert [batch["rows_per_second"] for batch in found] == [500_000, 0]
    assert found[0] == {
        "sequence": 2,
        "batch": 0,
        "rows": 250_000,
        "rows_per_second": 500_000,
        "keys": 10_000,
        "seconds": 0.5,
        "commit_ms": 12.4,
        "parallelism": 2,
        "rejected": 0,
    }


def test_options_reach_the_run(program, ran):
    options = (
        "--state memory:other --parallelism 4 --master local[1] --restarts 3 --backoff 500ms --take-over --local /tmp/x"
    )
    more = [
        "--every",
        "5 seconds",
        "--allow-dropped-state",
        "last",
        "--allow-dropped-state",
        "first",
        "--allow-dropped-source",
        "orders",
        "--allow-dropped-source",
        "clicks",
        "--shared-state",
        "--conf",
        "spark.a=b=c",
    ]
    more += ["--drop-unpublished", "out", "--drop-unpublished", "late"]
    assert call("run", program, *options.split(), *more).exit_code == 0
    assert {name: value for name, value in ran.items() if value != getattr(RunOptions(), name)} == {
        "drop_unpublished": ["out", "late"],
        "state": "memory:other",
        "shared_state": True,
        "parallelism": 4,
        "master": "local[1]",
        "restarts": 3,
        "backoff": "500ms",
        "take_over": True,
        "local": "/tmp/x",
        "every": "5 seconds",
        "allow_dropped_state": ["last", "first"],
        "allow_dropped_source": ["orders", "clicks"],
        "conf": {"spark.a": "b=c"},
    }


def test_options_that_are_not_given_are_left_to_the_program(program, ran):
    call("run", program, "--until", "end")
    assert ran["state"] == "memory:clicks"
    assert {name: value for name, value in ran.items() if value != getattr(RunOptions(), name)} == {
        "until": "end",
        "state": "memory:clicks",
    }


@pytest.mark.parametrize(
    ("old", "now", "until", "every"),
    [
        (["--bounded"], "write --until 'end'", "end", None),
        (["--trigger", "once"], "write --until 'caught-up'", "caught-up", None),
        (["--trigger", "direct"], "leave it out", None, None),
        (["--trigger", "5 seconds"], "write --every '5 seconds'", None, "5 seconds"),
    ],
)
def test_options_of_version_0_1_work_and_warn(program, ran, old, now, until, every):
    found = call("run", program, *old)
    assert found.exit_code == 0
    assert f"will be removed in the next version; {now}" in found.stderr
    assert (ran["until"], ran["every"]) == (until, every)


def test_a_profile_gives_options_that_the_command_line_overrides(program, ran, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidewheel.toml").write_text(
        '[run]\nrestarts = 5\nbackoff = "2 s"\n[profiles.staging]\nbackoff = "9 s"\nparallelism = 4\n'
    )
    assert call("run", program).exit_code == 0
    assert (ran["restarts"], ran["backoff"], ran["parallelism"]) == (5, "2 s", None)
    assert call("run", program, "--profile", "staging", "--parallelism", "2").exit_code == 0
    assert (ran["restarts"], ran["backoff"], ran["parallelism"]) == (5, "9 s", 2)
    found = call("run", program, "--profile", "prod")
    assert "tidewheel.toml has no profile 'prod'; it has staging" in " ".join(found.output.split())
    monkeypatch.chdir("/")
    found = call("run", program, "--profile", "staging")
    assert "there is no tidewheel.toml in /; go to its folder" in " ".join(found.output.split())
    assert call("run", program, "--config", f"{tmp_path}/tidewheel.toml", "--profile", "staging").exit_code == 0


def test_how_often_an_idle_job_looks_at_the_clock(program, ran):
    assert call("run", program, "--tick", "500 ms").exit_code == 0
    assert ran["tick"] == "500 ms"


@pytest.mark.parametrize(
    "arguments",
    [["--every", "5 bananas"], ["--until", "now"], ["--parallelism", "0"], ["--conf", "spark.a"], ["--tick", "0.5"]],
)
def test_options_that_cannot_work_are_refused(program, ran, arguments):
    found = call("run", program, *arguments)
    assert found.exit_code == 2
    assert "Traceback" not in found.output
    assert not ran


@pytest.mark.parametrize("arguments", [["--lease", "5"], ["--lease", "1 ms"], ["--retention", "3600"]])
def test_times_of_a_node_are_durations(program, arguments):
    found = call("node", "--job", program, "--cells", "mem:", "--inbox", "none", *arguments)
    assert found.exit_code in (1, 2)
    assert "'90 s'" in found.output or "at least" in found.output


def test_a_stop_that_was_asked_for_is_no_failure(program, ran):
    ran["stopped"] = True
    found = call("run", program)
    assert found.exit_code == 0
    assert "stopped as asked, start again to continue" in found.stdout


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (StepError("step 'sum', key 'a': no good"), 1, "error: step 'sum', key 'a': no good"),
        (HeldError("job 'clicks' is held by [run] 7"), 2, "error: job 'clicks' is held by [run] 7"),
        (KeyboardInterrupt(), 130, "error: aborted"),
        (ZeroDivisionError("oops"), 1, "error: ZeroDivisionError: oops (run with -v for the stack trace)"),
    ],
)
def test_an_error_is_one_message_on_stderr_and_a_status(program, ran, error, status, text):
    ran["error"] = error
    found = call("run", program)
    assert found.exit_code == status
    assert text in found.stderr
    assert "Traceback" not in found.output
    assert "error" not in found.stdout


@pytest.mark.parametrize("arguments", [["run", "-v"], ["-v", "run"]])
def test_verbose_shows_the_stack_trace(program, ran, arguments):
    ran["error"] = StepError("no good")
    found = call(*arguments, program)
    assert found.exit_code == 1
    assert "Traceback" in found.stderr
    assert found.stderr.rstrip().endswith("error: no good")


def test_verbose_shows_the_whole_traceback_of_the_users_code(program, ran):
    error = StepError("step 'm': KeyError: 'user' (fail.py:6 in helper)")
    error.__cause__ = UserTraceback(
        "Traceback (most recent call last):\n  File \"fail.py\", line 6, in helper\nKeyError: 'user'"
    )
    ran["error"] = error
    assert 'File "fail.py", line 6, in helper\nKeyError' in call("run", "-v", program).stderr
    assert "Traceback" not in call("run", program).stderr


def test_a_long_message_is_not_broken_into_lines(program, ran):
    ran["error"] = StepError("x" * 300)
    assert "x" * 300 in call("run", program).stderr


def test_graph_as_text_and_as_mermaid(program):
    assert call("graph", program).stdout.splitlines() == [
        "in      source, reader: arrow",
        "double  map <- in",
        "out     sink <- double",
        "batches: in tasks of Spark, without a shuffle; on a local Spark, those without a shuffle in worker processes next to "
        "the driver, after the first ones",
    ]
    assert call("graph", program, "--mermaid").stdout.startswith("flowchart LR")


def test_graph_says_which_sources_wait_for_one_another(tmp_path):
    program = tmp_path / "aligned.py"
    program.write_text(
        "from tidewheel import Job, sinks, sources\n"
        "job = Job('aligned', state='memory:aligned', align='1 hour')\n"
        "timed = job.source('in', sources.iterable([])).event_time('at', max_delay='0 s')\n"
        "timed.sink('out', sinks.discard())\n"
        "timed.late.sink('late', sinks.discard())\n"
        "job.source('plain', sources.iterable([])).sink('other', sinks.discard())\n"
    )
    lines = call("graph", str(program)).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines if "source" in line] == [
        "in source, reader: arrow, at most 1:00:00 ahead of the others",
        "plain source, reader: arrow, without a clock to align",
    ]


def test_graph_refuses_the_sources_that_a_start_refuses(tmp_path):
    program = tmp_path / "untold.py"
    lines = "from tidewheel import Job, sinks, sources\njob = Job('untold', state='memory:untold')\n"
    program.write_text(lines + "job.source('in', sources.files('nowhere', 'json')).sink('out', sinks.discard())\n")
    found = call("graph", str(program))
    assert found.exit_code == 1
    assert "do not tell their columns; give schema=" in found.stderr
    program.write_text(lines + "job.source('in', sources.files('nowhere', 'parquet')).sink('out', sinks.discard())\n")
    found = call("graph", str(program))
    assert found.exit_code == 0, "a folder may be made later, and elsewhere"
    assert "Warning: source 'in': there is no folder" in found.stderr
    assert "there is no folder" not in found.stdout
    program.write_text(lines + "job.source('in', sources.files('nowhere', 'parket')).sink('out', sinks.discard())\n")
    assert 'did you mean format="parquet"?' in call("graph", str(program)).stderr


@pytest.mark.parametrize(
    ("command", "error"),
    [("graph", "do not tell their columns"), ("run", "there is no folder")],
)
def test_the_error_of_a_source_names_the_source(tmp_path, command, error):
    program = tmp_path / "wrong.py"
    program.write_text(
        "from tidewheel import Job, sinks, sources\n"
        f"job = Job('wrong', state={str(tmp_path / 'state')!r})\n"
        "job.source('in', sources.files('nowhere', 'json')).sink('out', sinks.discard())\n"
    )
    found = call(command, str(program))
    assert found.exit_code == 1
    assert found.stderr.partition("error: ")[2].startswith("source 'in': ")
    assert error in found.stderr


def test_graph_warns_of_a_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "orders.json").write_text("{}")
    program = tmp_path / "file.py"
    program.write_text(
        "from tidewheel import Job, sinks, sources\n"
        f"files = sources.files({str(tmp_path / 'orders.json')!r}, 'json', schema='user string')\n"
        "job = Job('file', state='memory:file')\n"
        "job.source('in', files).sink('out', sinks.discard())\n"
    )
    found = call("graph", str(program))
    assert f"Warning: source 'in': {tmp_path}/orders.json is a file, and a source reads a folder" in found.stderr


def test_graph_refuses_programs_that_cannot_run(program):
    with open(program, "a") as file:
        file.write("job.source('lost', iterable([1]))\n")
    found = call("graph", program)
    assert found.exit_code == 1
    assert "step 'lost' (source) has no sink" in found.stderr


def test_sinks_lists_every_sink_with_its_guarantee():
    assert set(kinds()) == set(exported) - {"Sink", "whole_files"}
    found = call("sinks").stdout
    for name, kind in kinds().items():
        assert any(line.startswith(name) and kind.guarantee in line for line in found.splitlines())


def test_help_has_examples():
    assert "tidewheel run clicks.py" in call("run", "--help").stdout
    assert call("--help").exit_code == 0


def test_cells_are_mounted():
    assert "cells" in call("--help").stdout


def test_lines_are_coloured_on_a_terminal():
    out = io.StringIO()
    LineProgress(Console(file=out, force_terminal=True, color_system="standard")).batch(BATCHES[1])
    assert "\x1b[" in out.getvalue()


def test_a_command_imports_only_what_it_needs():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from tidewheel._cli import app\n"
        "assert CliRunner().invoke(app, ['--version']).exit_code == 0\n"
        "print({'pyspark', 'pyarrow', 'numpy', 'lmdb', 'rich'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
