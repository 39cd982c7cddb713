"""A job's cells from Python, found by the job's name: `StoredJob.cell`."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidewheel import Job, StoredJob, sinks, sources
from tidewheel._cells import open_cells
from tidewheel.cells import Closed, Encoding, WrongType
from tidewheel.errors import ConfigError
from tidewheel.testing import MemoryRun


@dataclass
class Limits:
    low: int
    high: int = 9


def program(state: str, out: list | None = None, **options) -> Job:
    job = Job("live", state=state, n_shards=4, **options)
    threshold = job.cell("threshold", float, default=1.0)
    job.cell("limits", Limits, default=Limits(1))
    numbers = job.source("in", sources.iterable([]), type=int)
    numbers.filter("large", lambda n: n > threshold.value).sink("out", sinks.collect(out))
    return job


@pytest.fixture
def state(tmp_path) -> str:
    with MemoryRun(program(str(tmp_path))) as run:
        run.batch({"in": [1]})
    return str(tmp_path)


def test_a_written_value_reaches_the_next_batch(state):
    with StoredJob("live", state=state).cell("threshold", float) as threshold:
        assert threshold.read() is None
        assert threshold.write(2.0) == 1
    out: list = []
    with MemoryRun(program(state, out)) as run:
        run.batch({"in": [1, 2, 3]})
    assert out == [{"value": 3}]
    assert StoredJob("live", state=state).cell("threshold").read() == 2.0


def test_cells_at_another_url_are_opened_only_if_the_user_names_it(tmp_path):
    """The URL in the store may be forged: credentials and writes go only to addresses that the user gave."""
    state, cells = str(tmp_path / "state"), f"file:{tmp_path}/cells"
    with MemoryRun(program(state, cells=cells)) as run:
        run.batch({"in": [1]})
    stored = StoredJob("live", state=state)
    for ask in (lambda: stored.cell("threshold"), stored.status, stored.stop, lambda: stored.restore(1)):
        with pytest.raises(ConfigError, match=f"add --cells {cells}"):
            ask()
    with stored.cell("threshold", float, cells=cells) as threshold:
        threshold.write(2.0)
    with open_cells(f"{cells}/live") as connection:
        assert connection.reader("threshold", float, namespace="cells").read() == 2.0


def test_cells_that_the_job_would_not_see_are_not_opened_at_its_place(state):
    with open_cells(program(state).cells_url) as connection:
        for options in ({}, {"namespace": "live"}):
            for opens in (connection.writer, connection.reader):
                with pytest.raises(ConfigError, match=r"would not see 'threshold' .*StoredJob\(JOB, state=….\.cell"):
                    opens("threshold", float, **options)
        assert connection.names() == []
        connection.writer("threshold", float, namespace="cells").write(3.0)
    assert StoredJob("live", state=state).cell("threshold").read() == 3.0


def test_a_name_that_the_job_does_not_declare_is_refused(state):
    with pytest.raises(ConfigError, match="declares no cell 'treshold'; it declares threshold, limits"):
        StoredJob("live", state=state).cell("treshold")


def test_another_type_is_refused(state):
    with pytest.raises(WrongType, match="the cell 'threshold' of job 'live' is declared as float there, here as int"):
        StoredJob("live", state=state).cell("threshold", int)


def test_without_a_type_values_are_plain_and_checked(state):
    with StoredJob("live", state=state).cell("limits") as plain:
        with pytest.raises(Encoding, match="the cell 'limits' of job 'live', which is declared as Limits"):
            plain.write({"low": "x"})
        plain.write({"low": 3})
        assert plain.read() == {"low": 3}
    with StoredJob("live", state=state).cell("limits", Limits) as limits:
        assert limits.read() == Limits(3)


def test_the_connection_is_closed_with_the_cell(state):
    with StoredJob("live", state=state).cell("threshold", float) as threshold:
        pass
    with pytest.raises(Closed):
        threshold.write(2.0)
    assert threshold._connection.is_closed


@pytest.mark.parametrize(
    "change", [lambda cell: setattr(cell, "value", 2), lambda cell: cell.write(2), lambda cell: cell.set(2)]
)
def test_changing_a_cell_through_the_program_object_explains_how(change):
    cell = Job("live").cell("limit", int, default=1)
    with pytest.raises(
        AttributeError, match=r"StoredJob\(JOB, state=…\)\.cell\('limit'\), or with tidewheel cells get and set"
    ):
        change(cell)


def test_a_job_shows_its_name_and_where_its_state_is():
    job = Job("live", state="s3://bucket/jobs?secret_access_key=hush")
    assert repr(job) == "<Job 'live', 0 steps, state at s3://bucket/jobs>"
