"""`tidewheel top`: the jobs, and one job, in a terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from support.internals import app
from support.page_site import HOSTILE, stored_job, write_history
from tidewheel._ui.cli.top import all_jobs, one_job, plain
from tidewheel._ui.site import Site


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    url = f"{tmp_path_factory.mktemp('top')}/state"
    stored_job(url)
    write_history(url)
    return url


def shown(*arguments):
    answer = CliRunner().invoke(app, ["top", "--once", *arguments], env={"COLUMNS": "200"})
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_all_jobs_with_state_rate_and_error(url):
    output = shown("--state", url)
    assert "clicks" in output
    assert "failed" in output
    assert HOSTILE[:30] in output


def test_one_job_with_its_operators_and_newest_batches(url):
    output = shown("clicks", "--state", url)
    for text in ("stateful_map", "by-user", "31", "offsets", "publish"):
        assert text in output


def test_the_slowest_step_of_an_ended_job_is_shown(url):
    output = shown("clicks", "--state", url)
    assert "in/s, out/s and busy: of the last active minute of the job, until" in output
    (count,) = (line for line in output.splitlines() if "stateful_map" in line)
    assert " 102 " in count
    assert "20%" in count
    assert "key 'ada' has 50% of the messages of by-user" in output


def test_machines_get_the_same_as_json(url):
    (row,) = json.loads(shown("--json", "--state", url))
    assert (row["name"], row["state"]) == ("clicks", "failed")
    told = json.loads(shown("clicks", "--json", "--state", url))
    assert [each["name"] for each in told["steps"]]
    assert [(each["key"], each["step"]) for each in told["hot_keys"]] == [("'ada'", "by-user")]
    assert told["batches"][-1]["sequence"] == 31
    status = json.loads(CliRunner().invoke(app, ["status", "clicks", "--json", "--state", url]).output)
    assert (told["committed_at"] // 10**6, told["rows_waiting"]) == (
        status["committed_at"] // 10**6,
        status["rows_waiting"],
    )


@pytest.mark.parametrize("columns", ["80", "200"])
def test_without_colours_the_phases_of_batches_are_figures(url, columns):
    answer = CliRunner().invoke(app, ["top", "--once", "clicks", "--state", url], env={"COLUMNS": columns})
    assert "█" not in answer.output
    batch = next(line.split() for line in answer.output.splitlines() if line.startswith("    31 "))
    assert batch[-8:] == ["100", "500", "10", "100", "300", "50", "20", "20"]
    assert "ms: what the batch took, then its phases, in milliseconds" in answer.output


def test_in_a_file_or_a_pipe_nothing_is_cut(url):
    answer = CliRunner().invoke(app, ["top", "--once", "clicks", "--state", url], env={"COLUMNS": "30"})
    (count,) = (line.split() for line in answer.output.splitlines() if line.strip().startswith("count "))
    assert count[:5] == ["count", "stateful_map", "102", "102", "20%"]
    assert "…" not in answer.output


def test_with_colours_they_are_bars(url):
    console = Console(width=120, file=io.StringIO(), force_terminal=True, color_system="standard")
    site = Site(url)
    console.print(one_job(site, "clicks"))
    site.close()
    assert "█" in console.file.getvalue()


def test_a_place_without_jobs_is_reported(tmp_path):
    assert "no job here yet" in shown("--state", f"{tmp_path}/nothing")


def test_a_terminal_obeys_nothing_that_comes_from_a_job():
    assert plain("\x1b[2Jgone\x07").plain == "\N{REPLACEMENT CHARACTER}[2Jgone\N{REPLACEMENT CHARACTER}"


def test_eighty_columns_are_enough_and_errors_have_their_own_lines():
    now = 1_000.0
    row = {"name": "orders-by-user", "state": "running", "rate": 1_234_567.0, "rows_behind": 1_234_567}
    row |= {"sequence": 123_456, "committed_at": now - 3600, "now": now, "host": "a-machine-with-a-long-name"}
    failed = row | {"name": "clicks", "state": "failed", "error": {"text": "step 'count': it is odd. " * 8}}
    console = Console(width=80, file=io.StringIO())
    console.print(all_jobs([row, failed]))
    output = console.file.getvalue()
    for text in ("orders-by-user", "running", "1,234,567 rows", "123,456", "3600 s ago", "last commit"):
        assert text in output
    assert "clicks: step 'count': it is odd." in output
    assert output.count("odd") == 8
