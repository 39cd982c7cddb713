"""`explain --output` and `explain --records`: conditions on rows, and the records of kept batches."""

from __future__ import annotations

import json
import random

import pytest
from typer.testing import CliRunner

from support.replayed import ReadingRun
from tidewheel import StoredJob
from tidewheel._cli.commands import app
from tidewheel._cli.program import load_job
from tidewheel._replay import key_trace

PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("spent", state="file:{folder}/state", n_shards=4, keep=100)
ORDERS = [{{"user": "ada", "note": "gift"}}, {{"user": "bob", "note": None}}, {{"user": "ada", "note": "late"}}]
orders = job.source("orders", sources.iterable(ORDERS, batch_size=1)).key_by("by-user", "user")
counted = orders.stateful_map("count", lambda user, order, n: ({{"note": order.note, "n": n}}, n + 1), default=0)
counted.sink("out", sinks.collect())
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spent.py").write_text(PROGRAM.format(folder=tmp_path))
    with ReadingRun(load_job(f"{tmp_path}/spent.py")) as run:
        run.read_all(random.Random(1), 1)
    return tmp_path


def explained(folder, *arguments, status=0):
    answer = CliRunner().invoke(app, ["explain", "spent", *arguments, "--state", f"file:{folder}/state"])
    assert answer.exit_code == status, answer.output
    return answer.output


def found(folder, condition, status=0):
    return explained(folder, condition, "--output", "out", "--records", f"{folder}/spent.py", status=status)


def test_a_condition_does_not_hold_for_a_null(folder):
    assert [line.split()[0] for line in found(folder, "note.startswith('g') or note > 'k'").splitlines()] == ["2", "4"]


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("1 / n > 0", 'fails for the row {"user":"ada","note":"gift","n":0}: ZeroDivisionError'),
        ("note.startwith('g')", "AttributeError: 'str' object has no attribute 'startwith'"),
        ("total > 0", "name 'total' is not defined. The columns are user, note, n"),
    ],
)
def test_a_condition_that_fails_is_an_error_with_the_row(folder, condition, error):
    assert error in found(folder, condition, status=1)


def test_options_of_a_second_run_need_the_program(folder):
    for option in (("--last", "1"), ("--changed",)):
        assert "belong to --records PROGRAM" in explained(folder, "count", "ada", *option, status=1)


def test_the_records_are_shown_while_the_job_drops_checkpoints(folder, monkeypatch):
    stored = StoredJob("spent", state=f"file:{folder}/state")
    trace = key_trace.KeyTrace.make_step

    def and_collect(self, *arguments):
        stored.gc(keep=1, grace=0)
        return trace(self, *arguments)

    monkeypatch.setattr(key_trace.KeyTrace, "make_step", and_collect)
    told = explained(folder, "count", "ada", "--records", f"{folder}/spent.py", "--json")
    assert [[record["after"] for record in json.loads(line)["records"]] for line in told.splitlines()] == [[1], [2]]


def test_the_oldest_kept_batch_is_said_to_have_no_state_before_it(folder):
    stored = StoredJob("spent", state=f"file:{folder}/state")
    stored.gc(keep=len(stored.list()) - 1)
    first, second, *_ = explained(folder, "count", "ada", "--records", f"{folder}/spent.py").splitlines()
    assert first.startswith(f"{stored.list()[0].sequence} ")
    assert second.strip() == "the batch cannot run again: the commit before it is not kept"
