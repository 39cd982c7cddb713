"""`tidewheel replay --local`: the same program, a program that draws numbers, and what is refused."""

from __future__ import annotations

import json
import random
import re

import pytest
from typer.testing import CliRunner

from support.replayed import ReadingRun
from tidewheel._cli.commands import app
from tidewheel._cli.program import load_job

PROGRAM = """
import random
from tidewheel import Job, sinks, sources

job = Job("spent", state="file:{state}", n_shards=4, keep=100)
orders = job.source("orders", sources.iterable([{{"user": u, "cents": 5}} for u in ("ada", "bob", "ada", "cy")], batch_size=2))
drawn = orders.map("draw", lambda order: {{"user": order.user, "cents": {cents}}})
totals = drawn.key_by("by-user", lambda order: order["user"]).stateful_map(
    "total", lambda user, order, total: (total + order["cents"], total + order["cents"]), default=0
)
totals.sink("out", sinks.collect())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    (folder / "spent.py").write_text(PROGRAM.format(state=f"{folder}/state", cents="order.cents"))
    unsteady = "order.cents + (random.random() if order.user == 'bob' else 0)"
    (folder / "unsteady.py").write_text(PROGRAM.format(state=f"{folder}/state", cents=unsteady))
    with ReadingRun(load_job(f"{folder}/spent.py")) as run:
        run.read_all(random.Random(1), 1)
    return folder


def told(folder, program, *arguments, status=0):
    answer = CliRunner().invoke(app, ["replay", f"{folder}/{program}", *arguments])
    assert answer.exit_code == status, answer.output
    return answer.output


def test_the_same_program_gives_the_same(folder):
    assert (
        told(folder, "spent.py", "2", "--local") == "same: commit 2 gives the same state and 2 rows of output again\n"
    )


def test_a_program_that_draws_numbers_is_found_with_step_and_key(folder):
    changed = told(folder, "spent.py", "2", "--local", "--program", f"{folder}/unsteady.py", status=1)
    number = r"5\.\d+"
    cause = rf"two runs begin to differ at step 'draw': one emitted .*\"cents\":{number}.*, the other .*{number}"
    assert re.search(cause, changed), changed
    assert "sink 'out': two runs of the batch wrote different rows: the program is not deterministic" in changed
    assert re.search(rf'total: 0 added, 1 changed, 0 dropped\n  "bob": 5 -> {number}\n', changed)
    text = told(folder, "spent.py", "2", "--local", "--program", f"{folder}/unsteady.py", "--json", status=1)
    (fields, *_) = map(json.loads, text.splitlines())
    assert (fields["same"], fields["causes"]["out"]["step"]) == (False, "draw")


def test_a_program_that_depends_on_the_order_of_a_set_is_found(folder):
    """The two runs are in two processes: in one process, a set of texts always has the same order."""
    ordered = "int(''.join(str('pqrstuvwx'.index(item)) for item in set('pqrstuvwx')))"
    (folder / "ordered.py").write_text(PROGRAM.format(state=f"{folder}/state", cents=ordered))
    changed = told(folder, "ordered.py", "2", "--local", "--program", f"{folder}/ordered.py", status=1)
    assert "sink 'out': two runs of the batch wrote different rows" in changed
    assert "two runs begin to differ at step 'draw': one emitted" in changed


def test_another_program_and_a_commit_that_is_not_kept_are_refused(folder):
    assert "another program made commit 2 of job 'spent'" in told(folder, "unsteady.py", "2", "--local", status=1)
    assert "commit 99 of job 'spent' is not kept" in told(folder, "spent.py", "99", "--local", status=1)


def test_the_program_of_a_commit_is_printed_if_the_job_keeps_it(tmp_path):
    text = PROGRAM.format(state=f"{tmp_path}/state", cents="order.cents").replace("keep=100", 'keep_for_replay="1 day"')
    (tmp_path / "spent.py").write_text(text)
    with ReadingRun(load_job(f"{tmp_path}/spent.py")) as run:
        run.read_all(random.Random(1), 1)
    arguments = ["checkpoints", "program", "spent", "2", "--state", f"file:{tmp_path}/state"]
    assert CliRunner().invoke(app, arguments).output == text.rstrip("\n") + "\n"


def test_a_program_that_is_not_kept_is_refused(folder):
    answer = CliRunner().invoke(app, ["checkpoints", "program", "spent", "2", "--state", f"file:{folder}/state"])
    assert (answer.exit_code, 'Job(keep_for_replay="1 day") stores it' in answer.output) == (1, True)
