"""`tidewheel route`: JSON lines from a file or standard input, each stored once."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
import typer
from typer.testing import CliRunner

from support.internals import from_stored, shard_of
from support.memory_inbox import whole
from tidewheel._cli.failures import Commands
from tidewheel.fleet import open_inbox
from tidewheel.fleet._cli.route import route
from tidewheel.fleet._inbox import decode_events

app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
app.command()(route)
app.command("other")(lambda: None)


@pytest.fixture
def url(tmp_path):
    return f"{tmp_path}/inbox"


def run(*arguments, text=None):
    return CliRunner().invoke(app, ["route", *map(str, arguments)], input=text)


def stored(url):
    found = []
    with open_inbox(url) as inbox:
        for block in whole(inbox):
            events = decode_events(block)
            found += zip(map(from_stored, events.keys), events.payloads, strict=True)
            assert {shard_of(from_stored(key), inbox.n_shards) for key in events.keys} == {block.block.shard}
    return found


def test_a_file_is_sent_and_sent_again_it_adds_nothing(url, tmp_path):
    lines = tmp_path / "lines.json"
    lines.write_text('{"user": "ada", "n": 1}\n\n{"user": "bob", "n": 2}\n{"user": 7, "n": 3}\n')
    options = ("--inbox", url, "--key", "user", lines, "--producer", "p", "--replay")
    first = run(*options, "--shards", 8)
    assert (first.exit_code, first.output) == (0, "routed 3 events, 0 were stored already, as producer p\n")
    with lines.open("a") as more:
        more.write('{"user": "ada", "n": 4}\n')
    assert run(*options).output == "routed 1 events, 3 were stored already, as producer p\n"
    assert Counter(key for key, _ in stored(url)) == {"ada": 2, "bob": 1, 7: 1}
    assert (7, b'{"user": 7, "n": 3}') in stored(url)


def test_standard_input(url):
    command = [
        sys.executable,
        "-c",
        "from tidewheel.fleet._cli.route import *; import typer; typer.run(route)",
    ]
    done = subprocess.run(
        [*command, "-i", url, "-k", "id", "--shards", "4"], input=b'{"id": 1}\n' * 1000, capture_output=True, check=True
    )
    assert done.stdout.startswith(b"routed 1000 events\n")
    assert len(stored(url)) == 1000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "Expected `object`"),
        ('{"x": 1}', "missing required field `id`"),
        ('{"id": null}', "got `null`"),
        ('{"id": 1', "truncated"),
        (b'{"id": 1, "x": "\xff"}', "codec can't decode"),
    ],
)
def test_an_invalid_line_is_named(url, tmp_path, line, reason):
    lines = tmp_path / "lines"
    lines.write_bytes(b'{"id": 1}\n' + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    done = run("-i", url, "-k", "id", "--shards", 4, lines)
    assert done.exit_code == 1
    assert f"line 2 of {lines} is not an event" in done.output.replace("\n", "")
    assert reason in done.output.replace("\n", "")
    assert stored(url) == [(1, b'{"id": 1}')], "the lines before it are stored"


@pytest.mark.parametrize("line", ['{"id": 1, "n": "2"}', '{"id": 1, "n": 2.5}', '{"id": 1, "n": 1, "n": 2}'])
def test_with_a_schema_a_line_that_the_job_could_not_read_is_named(url, tmp_path, line):
    lines = tmp_path / "lines"
    lines.write_text('{"id": 1, "n": 1}\n\n' + line + '\n{"id": 1, "n": 3}\n')
    done = run("-i", url, "-k", "id", "--shards", 4, "--schema", "id long, n long", lines)
    assert done.exit_code == 1
    assert f"line 3 of {lines} is not an event: it cannot be read as id long, n long" in done.output.replace("\n", "")
    assert stored(url) == [(1, b'{"id": 1, "n": 1}')], "the lines before it are stored"


def test_invalid_settings_are_reported(url, tmp_path):
    assert "there is no inbox" in run("-i", url, "-k", "id", text="").output
    assert "--replay needs --producer" in run("-i", url, "-k", "id", "--replay", text="").output
    assert "cannot be read" in run("-i", url, "-k", "id", "--shards", 4, tmp_path / "none").output
