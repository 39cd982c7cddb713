"""`tidewheel top`: the jobs, and one job, in a terminal."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from page_site import HOSTILE, stored_job, write_history
from tidewheel._cli import app
from tidewheel._cli.top import plain


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


def test_a_place_without_jobs_says_so(tmp_path):
    assert "no job here yet" in shown("--state", f"{tmp_path}/nothing")


def test_a_terminal_obeys_nothing_that_comes_from_a_job():
    assert plain("\x1b[2Jgone\x07").plain == "\N{REPLACEMENT CHARACTER}[2Jgone\N{REPLACEMENT CHARACTER}"
