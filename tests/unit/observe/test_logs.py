"""Log records name their run, as text or JSON, and contain no secret."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from typer.testing import CliRunner

from support.internals import app
from tidewheel._core import logs as core
from tidewheel._observe import logs
from tidewheel.errors import ConfigError

LOG = core.logger("tidewheel._engine.example")


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger(logs.ROOT)
    before = (list(root.handlers), root.level, root.propagate)
    yield
    root.handlers, root.level, root.propagate = before
    root.setLevel(before[1])


@pytest.fixture
def run():
    context = core.RunContext("orders", "r1", "one", lambda: 7, lambda: "abc")
    core.begin(context)
    yield context
    core.end(context)


def test_a_json_record_has_its_run_and_the_newest_commit(capsys, run):
    logs.configure(form="json")
    LOG.info("%d rows", 3)
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "tidewheel._engine.example",
        "message": "3 rows",
        "job": "orders",
        "run": "r1",
        "node": "one",
        "sequence": 7,
        "trace_id": "abc",
    }


def test_an_error_has_its_traceback_without_secrets(capsys):
    logs.configure(form="json")
    try:
        raise ValueError("nats://ada:s3cret@host/a")
    except ValueError:
        LOG.exception("cannot reach nats://ada:s3cret@host/a")
    text = capsys.readouterr().err
    line = json.loads(text)
    assert line["message"] == "cannot reach nats://host/a"
    assert "ValueError: nats://host/a" in line["error"]
    assert "s3cret" not in text
    assert "job" not in line


def test_text_is_for_people_and_begins_with_warnings(capsys, run):
    logs.configure()
    LOG.info("nobody wants to know")
    LOG.warning("a source is away")
    assert capsys.readouterr().err == "warning: orders: a source is away\n"


def test_levels_can_be_set(capsys):
    logs.configure(level="error", form="text")
    LOG.warning("no")
    logs.configure(level="debug", form="text")
    LOG.debug("yes")
    assert capsys.readouterr().err == "debug: yes\n"


def test_with_several_runs_a_thread_logs_its_own(capsys, run):
    logs.configure(form="json")
    other = core.RunContext("payments", "r2")
    core.begin(other)
    try:
        LOG.info("whose?")
        with core.of_run(other):
            LOG.info("mine")
    finally:
        core.end(other)
    thread = threading.Thread(target=LOG.info, args=("of the only one",))
    thread.start()
    thread.join()
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line.get("job") for line in found] == [None, "payments", "orders"]


def test_records_of_user_configured_logging_have_the_fields(caplog, run):
    LOG.warning("x")
    (record,) = caplog.records
    assert (record.job, record.run, record.node, record.sequence) == ("orders", "r1", "one", 7)


@pytest.mark.parametrize("wrong", [{"level": "loud"}, {"form": "xml"}])
def test_what_cannot_be_done_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"not (as )?'(loud|xml)'"):
        logs.configure(**wrong)


@pytest.mark.parametrize(
    ("option", "text"),
    [(["--log-level", "loud"], "debug, info, warning, error"), (["--log-format", "xml"], "text or json")],
)
@pytest.mark.parametrize(
    "command",
    [["run", "nothing.py"], ["bridge", "kafka", "--brokers", "127.0.0.1:1", "--topic", "t", "--inbox", "file:none"]],
)
def test_the_command_line_refuses_it_as_a_usage_error(command, option, text):
    result = CliRunner().invoke(app, [*command, *option], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert text in result.output


def test_a_command_that_fails_logs_its_error_as_json_too(capfd):
    result = CliRunner().invoke(app, ["run", "nothing.py", "--log-format", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stderr)["level"] == "error"
    assert "nothing.py" in json.loads(result.stderr)["message"]
