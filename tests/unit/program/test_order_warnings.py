"""A program that depends on the order of messages gets a warning if its source promises none."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from support.internals import app
from tidewheel import Job, count, tumbling
from tidewheel._operators.order_checks import order_warnings
from tidewheel.sinks import discard
from tidewheel.sources import dataframe, files, iterable, kafka, mqtt, nats

FRAME = dataframe(lambda spark: spark.readStream.format("rate").load())
STEPS = {
    "stateful_map": lambda keyed: keyed.stateful_map("op", lambda key, value, n: (n, n + 1), default=0),
    "stateful_op": lambda keyed: keyed.stateful_op("op", lambda message, state, output: state, default=0),
    "window": lambda keyed: keyed.window("op", tumbling("1 s"), n=count()),
    "aggregate": lambda keyed: keyed.aggregate("op", n=count()),
}


def program(source, step, also=None) -> Job:
    job = Job("ordered", state="memory:ordered")
    stream = job.source("in", source)
    if also is not None:
        stream = stream.union("all", job.source("also", also))
    timed = stream.map("same", lambda row: row).event_time("at", max_delay="1 s")
    timed.late.sink("late", discard())
    STEPS[step](timed.key_by("by", "user")).sink("out", discard())
    return job


@pytest.mark.parametrize("step", ["stateful_map", "stateful_op"])
def test_a_step_that_depends_on_order_behind_a_dataframe_gives_a_warning(step):
    (warning,) = order_warnings(program(FRAME, step).graph)
    assert warning.startswith(f"step 'op' ({step}) may give other results at every run: source 'in' does not promise")


def test_the_warning_names_only_the_source_without_order():
    (warning,) = order_warnings(program(iterable([]), "stateful_map", also=FRAME).graph)
    assert "source 'also'" in warning


@pytest.mark.parametrize("step", ["window", "aggregate"])
def test_a_step_that_does_not_depend_on_order_gives_no_warning(step):
    assert list(order_warnings(program(FRAME, step).graph)) == []


@pytest.mark.parametrize(
    "source",
    [
        iterable([]),
        files("x", "json"),
        kafka("h:9092", "orders"),
        nats("nats://h", "orders"),
        mqtt("mqtt://h", "orders", buffer="x", client_id="c"),
    ],
    ids=lambda source: type(source).__name__,
)
def test_sources_that_keep_the_order_give_no_warning(source):
    assert list(order_warnings(program(source, "stateful_map").graph)) == []


def test_the_command_graph_shows_the_warning(tmp_path):
    (tmp_path / "program.py").write_text(
        "from tidewheel import Job, sinks, sources\n"
        "job = Job('ordered')\n"
        "rows = job.source('in', sources.dataframe(lambda spark: spark.readStream.format('rate').load()))\n"
        "numbered = rows.key_by('by', 'value').stateful_map('number', lambda key, row, n: (n, n + 1), default=0)\n"
        "numbered.sink('out', sinks.discard())\n"
    )
    shown = CliRunner().invoke(app, ["graph", str(tmp_path / "program.py")])
    assert shown.exit_code == 0
    assert "Warning: step 'number' (stateful_map) may give other results at every run: source 'in'" in shown.stderr
