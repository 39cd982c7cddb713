"""`tidewheel reset`: it deletes a job's state, and on request the output of its sinks."""

from __future__ import annotations

import secrets

import pytest
from typer.testing import CliRunner

from support.internals import app, open_store
from tidewheel import StoredJob
from tidewheel._cells import open_cells
from tidewheel._cli.program import load_job
from tidewheel._engine.control import rescale
from tidewheel._engine.job_lease import JobLease
from tidewheel.errors import StateError
from tidewheel.testing import MemoryRun

PROGRAM = """
from tidewheel import Job, sinks, sources

job = Job("counts", state="file:{folder}/state", n_shards=4)
job.cell("limit", int, default=1)
numbers = job.source("in", sources.iterable([]), type=int).key_by("by-parity", lambda n: n % 2)
counts = numbers.stateful_map("count", lambda key, n, count: (count + 1, count + 1), default=0)
counts.sink("out", sinks.files("{folder}/out", format="json"))
counts.sink("seen", sinks.discard())
"""


@pytest.fixture
def program(tmp_path) -> str:
    path = tmp_path / "counts.py"
    path.write_text(PROGRAM.format(folder=tmp_path))
    return str(path)


@pytest.fixture
def state(program, tmp_path) -> str:
    run_once(program)
    return str(tmp_path / "state")


def run_once(program: str) -> None:
    with MemoryRun(load_job(program)) as run:
        run.batch({"in": [1, 2, 3]})


def outputs(tmp_path) -> list[str]:
    return sorted(line for path in tmp_path.glob("out/*.json") for line in path.read_text().splitlines())


def cli(*arguments: str, status: int = 0, answer: str = "") -> str:
    result = CliRunner().invoke(app, list(arguments), input=answer)
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def test_reset_lists_the_deletions_and_asks(state):
    StoredJob("counts", state=state).savepoint("before")
    text = cli("reset", "counts", "--state", state, status=1, answer="n\n")
    assert "after 3 events" in text
    assert "savepoints: before" in text
    assert "Delete this permanently?" in text
    assert StoredJob("counts", state=state).get("count", 1).value == 2


def test_reset_removes_the_state_and_keeps_published_output(program, state, tmp_path):
    published = outputs(tmp_path)
    cli("cells", "set", "limit", "7", "--job", "counts", "--state", state)
    rescale(load_job(program).cells_url, 3)
    assert "the next start begins without state" in cli("reset", "counts", "--state", state, "--yes")
    left = [entry.path for entry in open_store(state).list("counts") if not entry.path.startswith("counts/cells/")]
    assert left == []
    assert outputs(tmp_path) == published != []
    with open_cells(load_job(program).cells_url) as cells:
        assert cells.reader("limit", int, namespace="cells").is_empty()
    assert "there is no checkpoint of a job 'counts'" in cli("status", "counts", "--state", state, status=1)


def test_a_job_that_is_not_found_names_the_places_of_profiles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = f"file:{tmp_path}/state"
    assert "tidewheel.toml" not in cli("status", "counts", "--state", state, status=1)
    (tmp_path / "tidewheel.toml").write_text(
        '[run]\nrestarts = 5\n[profiles.staging]\nstate = "s3://ada:secret@staging/state"\n[profiles.laptop]\n'
    )
    error = cli("status", "counts", "--state", state, status=1)
    assert "--state s3://staging/state ([profiles.staging])" in error
    assert "laptop" not in error
    assert "secret" not in error
    (tmp_path / "tidewheel.toml").write_text("no TOML")
    assert "there is no checkpoint of a job 'counts'" in cli("status", "counts", "--state", state, status=1)


def test_reset_with_output_lets_the_job_start_over(program, state, tmp_path):
    first = outputs(tmp_path)
    text = cli("reset", program, "--output", answer="y\n")
    assert f"sink 'out': 1 file in {tmp_path}/out" in text
    assert "sink 'seen': nothing to delete (discard)" in text
    assert outputs(tmp_path) == []
    run_once(program)
    assert outputs(tmp_path) == first


def test_output_that_outlived_its_state_is_reported_and_can_be_reset(program, state, tmp_path):
    run_once(program)
    cli("reset", "counts", "--state", state, "--yes")
    with pytest.raises(StateError, match=r"tidewheel reset PROGRAM\.py --output"):
        run_once(program)
    cli("reset", program, "--output", "--yes")
    run_once(program)
    assert len(outputs(tmp_path)) == 3


def test_reset_refuses_while_the_job_runs(program, state):
    with open_cells(load_job(program).cells_url) as cells, JobLease(cells, secrets.token_hex(6)).held("counts"):
        text = cli("reset", "counts", "--state", state, status=2)
    assert "Remove this" not in text
    assert "end it with `tidewheel stop counts` first" in text
    assert StoredJob("counts", state=state).get("count", 1).value == 2


def test_reset_refuses_a_job_whose_files_a_fork_needs(state):
    stored = StoredJob("counts", state=state)
    stored.savepoint("base")
    stored.fork("base", "trial")
    text = cli("reset", "counts", "--state", state, "--yes", status=1)
    assert "job 'trial' is a fork of job 'counts'" in text
    cli("reset", "trial", "--state", state, "--yes")
    cli("reset", "counts", "--state", state, "--yes")


def test_output_takes_the_program(state):
    assert "tidewheel reset PROGRAM.py --output" in cli("reset", "counts", "-s", state, "--output", status=1)
