"""`explain`, `state history` and `checkpoints diff --key` show what became of a key, without Spark and without the program."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from support.page_site import replayable_job
from tidewheel._cli.commands import app


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    url = f"file://{tmp_path_factory.mktemp('history')}/state"
    replayable_job(url)
    return url


def told(url, *arguments, status=0):
    answer = CliRunner().invoke(app, [*arguments, "--state", url])
    assert answer.exit_code == status, answer.output
    return answer.output


@pytest.mark.parametrize("command", [("explain",), ("state", "history")])
def test_the_values_of_a_key_are_shown_where_they_changed(url, command):
    lines = told(url, *command, "spent", "total", "ada").splitlines()
    assert [re.sub(r"\d{4}-\S+ \S+", "TIME", line).split() for line in lines] == [
        ["2", "TIME", "5"],
        ["3", "TIME", "-895", "(-900)"],
    ]
    versions = [json.loads(line) for line in told(url, *command, "spent", "total", "ada", "--json").splitlines()]
    assert [(version["sequence"], version["value"]) for version in versions] == [(2, 5), (3, -895)]
    assert "has no state in step 'total'" in told(url, *command, "spent", "total", "nobody", status=1)


def test_two_checkpoints_are_compared_for_one_key(url):
    assert told(url, "checkpoints", "diff", "spent", "2", "3", "--key", "ada") == "total: 5 -> -895\n"
