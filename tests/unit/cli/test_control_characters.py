"""Control characters in records, cells and names do not reach the terminal."""

import io
import logging

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from support.internals import app, open_store
from tidewheel import Job, sinks, sources
from tidewheel._cells import open_cells
from tidewheel._cli.console import Terminal
from tidewheel._core.text import printable
from tidewheel._engine.stored_cells import stored_cells
from tidewheel._observe.logs import TextFormatter
from tidewheel.testing import MemoryRun

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e"


@pytest.fixture
def state(tmp_path) -> str:
    url = f"file://{tmp_path}"
    job = Job("j", state=url, n_shards=2)
    job.cell("limit", str, default="x")
    keyed = job.source("in", sources.iterable([]), type=dict).key_by("by", "k")
    keyed.stateful_map("count", lambda key, record, n: (n + 1, n + 1), default=0).sink("out", sinks.discard())
    with MemoryRun(job) as run:
        run.batch({"in": [{"k": f"a{EVIL}"}]})
    cells = stored_cells(open_store(url), "j")
    with open_cells(cells.url, program=f"evil{EVIL}") as connection:
        cells.open(connection, "limit").write(f"v{EVIL}")
    return url


@pytest.mark.parametrize(
    "command",
    [
        ["cells", "list", "--job", "j"],
        ["cells", "get", "limit", "--job", "j"],
        ["state", "scan", "j", "count"],
        ["state", "get", "j", "count", f"a{EVIL}"],
        ["state", "get", "j", f"count{EVIL}", "a"],
        ["top", "--once"],
        ["status", "j"],
        ["checkpoints", "list", "j"],
    ],
    ids=range(8),
)
def test_no_command_prints_control_characters(state, command):
    output = CliRunner().invoke(app, [*command, "--state", state]).output
    assert output
    assert printable(output) == output


def test_a_table_escapes_control_characters_and_keeps_its_own_colours():
    out = io.StringIO()
    table = Table("name")
    table.add_row(Text(f"a{EVIL}", "red"))
    Terminal(file=out, force_terminal=True, color_system="standard", width=80).print(table)
    assert r"a\x1b]0;owned" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()
    assert "\x1b[31m" in out.getvalue()


def test_a_text_log_escapes_control_characters():
    record = logging.LogRecord("tidewheel", logging.WARNING, "", 1, "bad record %s\nnext", (EVIL,), None)
    assert TextFormatter().format(record) == "warning: bad record \\x1b]0;owned\\x07\\x1b[2J\\x9b2J\\u202e\nnext"
