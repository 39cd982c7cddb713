"""Cells in the shell: a job's cells are found by the job's name, and are those that its program declares."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from support.internals import app, open_store
from tidewheel import Job, StoredJob, sinks, sources
from tidewheel._cells import open_cells
from tidewheel._engine.declaration import declaration, declared_by
from tidewheel.cells import Encoding, WrongType
from tidewheel.testing import MemoryRun


def cli(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


def live(state: str, out: list | None = None, **options) -> Job:
    job = Job("live", state=state, n_shards=4, **options)
    limit = job.cell("threshold", float, default=1.0)
    job.cell("names", dict[str, int], default={"ada": 1})
    numbers = job.source("in", sources.iterable([]), type=int)
    numbers.filter("large", lambda n: n > limit.value).sink("out", sinks.collect(out))
    return job


@dataclass
class Limits:
    low: int
    high: int = 9


def larger(state: str) -> Job:
    job = Job("c2", state=state, n_shards=4)
    job.cell("rates", dict[str, float], default={"EUR": 1.0})
    job.cell("words", list[str])
    job.cell("limits", Limits, default=Limits(1))
    job.cell("maybe", float | None)
    job.cell("anything", dict)
    job.source("in", sources.iterable([]), type=int).sink("out", sinks.collect())
    return job


@pytest.fixture
def state(tmp_path) -> str:
    with MemoryRun(live(str(tmp_path / "state"))) as run:
        run.batch({"in": [1, 2, 3]})
    return str(tmp_path / "state")


def test_cells_from_the_shell_reach_the_next_batch_of_the_job(tmp_path, state):
    assert cli("cells", "set", "threshold", "2", "--job", "live", "--state", state) == "1\n"
    out: list = []
    with MemoryRun(live(state, out)) as run:
        run.batch({"in": [1, 2, 3]})
    assert out == [{"value": 3}]
    assert cli("cells", "get", "threshold", "-j", "live", "-s", state) == "2.0\n"


def test_watching_an_unset_cell_shows_its_default(state):
    shown = json.loads(cli("cells", "watch", "threshold", "--count", "1", "--job", "live", "--state", state))
    assert shown == {"version": 0, "value": None, "author": None, "default": 1.0}


def test_a_name_that_the_job_does_not_declare_is_refused_with_those_it_does(state):
    error = cli("cells", "set", "treshold", "2", "--job", "live", "--state", state, status=1)
    assert "job 'live' declares no cell 'treshold'; it declares threshold, names" in error
    assert json.loads(cli("cells", "list", "-j", "live", "-s", state, "--json").splitlines()[0])["version"] == 0


def test_a_value_of_another_type_is_refused(state):
    assert "high is not of type float" in cli(
        "cells", "set", "threshold", "high", "--job", "live", "--state", state, status=1
    )
    refused = cli("cells", "set", "threshold", "2", "--type", "int", "--job", "live", "--state", state, status=1)
    assert "is declared as float, not as int" in refused


def test_values_are_checked_against_larger_types_too(tmp_path):
    state = str(tmp_path)
    MemoryRun(larger(state)).close()
    place = ("--job", "c2", "--state", state)
    refused = [
        ("rates", "hello", "[1]", '{"EUR": 1.0, "USD": "0.92"}', '{"EUR": 1.0'),
        ("words", "hello", "[1]", "{}"),
        ("limits", '{"low":"x"}', "{}", '{"low": 1, "hihg": 2}', "7"),
        ("maybe", "hello", "[1]"),
        ("anything", "hello", "[1]"),
    ]
    for name, *values in refused:
        for value in values:
            assert f"the cell '{name}' of job 'c2'" in cli("cells", "set", name, value, *place, status=1)
            assert f"the cell '{name}' of job 'c2'" in cli("cells", "cas", name, "null", value, *place, status=1)
    cli("cells", "set", "rates", '{"EUR": 1, "USD": 0.92}', *place)
    cli("cells", "cas", "rates", '{"USD": 0.92, "EUR": 1}', '{"EUR": 1.0, "USD": 0.9}', *place)
    cli("cells", "set", "words", '["a"]', *place)
    cli("cells", "set", "limits", '{"low": 2}', *place)
    cli("cells", "set", "maybe", "2", *place)
    assert "anything  dict\n    value    null\n" in cli("cells", "list", *place)
    with MemoryRun(larger(state)) as run:
        run.batch({"in": [1]})


def test_a_job_names_the_command_that_clears_an_invalid_value(tmp_path):
    state = f"memory:{tmp_path.name}"  # Where a change arrives at once.
    remedy = f"tidewheel cells clear limits --job c2 --state {state}"
    with MemoryRun(larger(state)) as run:
        run.batch({"in": [1]})
        with open_cells(larger(state).cells_url) as connection:
            connection.writer("limits", Any, namespace="cells", type_name="Limits").write({"low": "x"})
        with pytest.raises(
            Encoding, match=r"the cell 'limits' of job 'c2' .* Limits: Expected `int`.*"
        ) as while_running:
            run.batch({"in": [1]})
    with pytest.raises(Encoding) as at_start:
        MemoryRun(larger(state))
    assert remedy in str(while_running.value)
    assert remedy in str(at_start.value)
    cli(*remedy.split()[1:])
    with MemoryRun(larger(state)) as run:
        run.batch({"in": [1]})


def test_cells_list_of_a_job_shows_type_default_value_and_version(state):
    cli("cells", "set", "names", '{"bob": 2}', "--job", "live", "--state", state)
    rows = [json.loads(line) for line in cli("cells", "list", "--job", "live", "-s", state, "--json").splitlines()]
    assert rows[0].pop("author") is None
    assert rows[1].pop("author")["program"] == "tidewheel cells set"
    assert rows == [
        {"name": "threshold", "type": "float", "version": 0, "value": None, "default": 1.0},
        {"name": "names", "type": "dict[str, int]", "version": 1, "value": {"bob": 2}, "default": {"ada": 1}},
    ]
    *lines, author = cli("cells", "list", "--job", "live", "-s", state).splitlines()
    assert lines == [
        "threshold  float",
        "    value    1.0 (default)",
        "names  dict[str, int]  version 1",
        '    value    {"bob":2}',
        '    default  {"ada":1}',
    ]
    assert author.startswith("    author   ")
    assert "by tidewheel cells set" in author


def test_cells_at_another_url_are_opened_only_if_the_user_names_it(tmp_path):
    state, cells = str(tmp_path / "state"), f"file:{tmp_path}/cells"
    with MemoryRun(live(state, cells=cells)) as run:
        run.batch({"in": [1]})
    job = ("live", "--state", state)
    for command in (("cells", "list", "--job", *job), ("status", *job), ("stop", *job), ("rescale", *job, "3")):
        assert f"add --cells {cells}" in cli(*command, status=1)
    cli("cells", "set", "threshold", "5", "--job", *job, "--cells", cells)
    with open_cells(f"{cells}/live") as connection:
        assert connection.reader("threshold", float, namespace="cells").read() == 5.0
    assert "does not run" in cli("status", *job, "--cells", cells)


def test_a_login_is_not_stored_and_asked_for(tmp_path):
    job = Job("live", state=str(tmp_path), cells="etcd://ada:secret@localhost:2379/jobs")
    declared = declared_by(job)
    assert (declared.cells_at, declared.login) == ("etcd://localhost:2379/jobs", True)


def test_a_job_of_an_earlier_version_explains_what_to_do(state):
    open_store(state).delete("live/program.json")
    assert "start it once" in cli("cells", "list", "--job", "live", "--state", state, status=1)


def test_the_cells_of_a_job_are_known_after_its_first_start(tmp_path, state):
    for command in (("list",), ("get", "threshold"), ("set", "threshold", "2")):
        error = cli("cells", *command, "--job", "other", "--state", state, status=1)
        assert (
            f"job 'other' has not been started at file://{state}, or is still starting; the jobs there are 'live'"
            in error
        )
        assert f"start it with tidewheel run PROGRAM --state file://{state}" in error
        assert "checkpoint" not in error


def test_an_unset_cell_is_shown_with_its_default(state):
    assert cli("cells", "get", "threshold", "-j", "live", "-s", state) == "1.0 (default)\n"
    full = json.loads(cli("cells", "get", "names", "--full", "-j", "live", "-s", state))
    assert (full["value"], full["default"], full["version"]) == (None, {"ada": 1}, 0)
    cli("cells", "set", "threshold", "2", "--job", "live", "--state", state)
    cli("cells", "clear", "threshold", "--job", "live", "--state", state)
    assert cli("cells", "get", "threshold", "-j", "live", "-s", state) == "1.0 (default)\n"


def typed(state: str, declared: Any, default: Any) -> Job:
    job = Job("live", state=state, n_shards=4)
    job.cell("threshold", declared, default=default)
    job.source("in", sources.iterable([]), type=int).sink("out", sinks.collect())
    return job


@pytest.mark.parametrize("declared_between", [True, False])
def test_a_cell_of_another_type_starts_over_once_it_is_cleared(state, declared_between):
    cli("cells", "set", "threshold", "2", "--job", "live", "--state", state)
    if not declared_between:
        job = Job("live", state=state, n_shards=4)
        job.source("in", sources.iterable([]), type=int).sink("out", sinks.collect())
        MemoryRun(job).close()
    with pytest.raises(
        WrongType, match=r"'threshold' of job 'live' is declared as str, .* declared as float"
    ) as refused:
        MemoryRun(typed(state, str, "high"))
    line = f"tidewheel cells clear threshold --job live --state {state}"
    assert line in str(refused.value)
    cli(*line.split()[1:])
    with MemoryRun(typed(state, str, "high")) as run:
        assert run.run.cells.pin()["threshold"].value is None
    assert cli("cells", "get", "threshold", "-j", "live", "-s", state) == '"high" (default)\n'
    cli("cells", "set", "threshold", "low", "-j", "live", "-s", state)
    assert cli("cells", "get", "threshold", "-j", "live", "-s", state) == '"low"\n'


def test_a_running_job_uses_the_default_when_its_cell_is_cleared(state):
    with MemoryRun(live(state)) as run:
        cli("cells", "set", "threshold", "2", "--job", "live", "--state", state)
        cli("cells", "clear", "threshold", "--job", "live", "--state", state)
        for _, reader in run.run.cells._declared:
            reader.refresh()
        run.batch({"in": [1, 2, 3]})
        cli("cells", "set", "threshold", "3", "--job", "live", "--state", state)


def test_a_dict_may_have_numbers_for_keys(tmp_path):
    state = str(tmp_path / "state")
    MemoryRun(typed(state, dict[int, float], {1: 0.5})).close()
    cli("cells", "set", "threshold", '{"10": 1.5, "-2": 2}', "-j", "live", "-s", state)
    assert json.loads(cli("cells", "get", "threshold", "-j", "live", "-s", state)) == {"10": 1.5, "-2": 2.0}
    with StoredJob("live", state=state).cell("threshold", dict[int, float]) as cell:
        assert cell.read() == {10: 1.5, -2: 2.0}
        assert cell.compare_exchange({-2: 2.0, 10: 1.5}, {3: 3.0}).applied
    with StoredJob("live", state=state).cell("threshold") as plain:
        plain.write({4: 4})
    with MemoryRun(typed(state, dict[int, float], {1: 0.5})) as run:
        run.batch({"in": [1]})
        value = run.run.cells.pin()["threshold"].value
        assert value is not None
        assert msgspec.msgpack.decode(value) == {4: 4.0}


def test_without_a_job_or_a_url_the_ways_are_named(monkeypatch):
    monkeypatch.delenv("TIDEWHEEL_CELLS", raising=False)
    assert "--job JOB --state URL" in cli("cells", "get", "threshold", status=1)


def test_a_changed_program_declares_its_cells_again(tmp_path, state):
    job = Job("live", state=state, n_shards=4)
    job.source("in", sources.iterable([]), type=int).sink("out", sinks.collect())
    with MemoryRun(job) as run:
        run.batch({"in": [1]})
    declared = declaration(open_store(state), "live")
    assert declared is not None
    assert declared.cells == ()


def test_the_state_is_looked_for_where_a_program_has_it_by_default(tmp_path, state, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEWHEEL_STATE", raising=False)
    (tmp_path / "state").rename(tmp_path / ".tidewheel")
    assert "does not run" in cli("status", "live")
