"""Sinks whose work is done in the driver: collect, for_each, console, discard."""

from __future__ import annotations

import pickle
import threading

import pyarrow as pa
import pytest

from support.internals import open_store
from tidewheel import sinks
from tidewheel._connectors.sink import Publication, Staging
from tidewheel.errors import CorruptError, StepError


@pytest.fixture
def state(request):
    return f"memory:sinks-{request.node.name}"


def test_collect_adds_dicts_in_the_order_of_tasks_and_rows(harnessed, state):
    sink = sinks.collect()
    harness = harnessed(sink, state)
    tokens = [harness.stage(2, [{"n": task, "x": None}], [{"n": task + 10, "x": 1}], task=task) for task in range(2)]
    harness.publish(2, *tokens)
    assert sink.records == [{"n": 0, "x": None}, {"n": 10, "x": 1}, {"n": 1, "x": None}, {"n": 11, "x": 1}]


def test_collect_adds_a_sequence_once(harnessed, state):
    into: list[dict[str, int]] = []
    harness = harnessed(sinks.collect(into), state)
    first, second = harness.stage(2, [{"n": 1}]), harness.stage(3, [{"n": 2}])
    for sequence, token in ((2, first), (2, first), (3, second), (2, first)):
        harness.publish(sequence, token)
    assert into == [{"n": 1}, {"n": 2}]


def test_collect_accepts_a_state_that_starts_over(harnessed, state):
    sink = sinks.collect()
    harness = harnessed(sink, state)
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    harness.publish(2, harness.stage(2, [{"n": 2}], run="r2"))
    assert sink.records == [{"n": 1}, {"n": 2}]


def test_collect_keeps_its_list_in_the_driver():
    sink = sinks.collect([{"n": 1}])
    assert pickle.loads(pickle.dumps(sink)).records == []
    assert sink.records == [{"n": 1}]


def test_staged_output_has_its_sequence_in_the_name_and_is_collected(harnessed, state):
    harness = harnessed(sinks.collect(), state, name="my-out")
    harness.stage(7, [{"n": 1}], task=3, run="abc")
    (entry,) = open_store(state).list()
    assert entry.path.startswith("staged/00000000000000000007-abc-3-")
    assert entry.path.endswith("-my-out.arrow")


def test_staged_output_that_was_changed_is_not_published(harnessed, state):
    harness = harnessed(sinks.collect(), state)
    token = harness.stage(2, [{"n": 1}])
    (entry,) = harness.store.list()
    harness.store.write(entry.path, harness.store.read(entry.path)[:-1] + b"x")
    with pytest.raises(CorruptError, match=entry.path):
        harness.publish(2, token)


def test_for_each_gets_every_record_and_may_get_it_again(harnessed, state):
    seen: list[int] = []
    harness = harnessed(sinks.for_each(lambda record: seen.append(record["n"])), state)
    token = harness.stage(2, [{"n": 1}, {"n": 2}])
    harness.publish(2, token)
    harness.publish(2, token)
    assert seen == [1, 2, 1, 2]


def test_for_each_names_sink_record_and_error(harnessed, state):
    harness = harnessed(sinks.for_each(lambda record: 1 / record["n"]), state)
    token = harness.stage(2, [{"n": 0}])
    with pytest.raises(StepError, match=r"sink 'out'.*\{'n': 0\} of sequence 2: ZeroDivisionError"):
        harness.publish(2, token)


@pytest.mark.parametrize("factory", [sinks.for_each, sinks.for_each_batch])
def test_a_function_of_the_driver_does_not_travel(factory):
    held = threading.Lock()
    pickle.dumps(factory(lambda *_: held.acquire()))


def test_without_a_terminal_console_prints_a_line_per_record(harnessed, state, capsys):
    harness = harnessed(sinks.console(limit=2), state)
    harness.publish(2, harness.stage(2, [{"n": n, "s": "[x]"} for n in range(3)]))
    assert capsys.readouterr().out.splitlines() == [
        "out, sequence 2: n=0 s='[x]'",
        "out, sequence 2: n=1 s='[x]'",
        "out, sequence 2: … 1 more",
    ]


def test_console_prints_a_table_on_a_terminal(harnessed, state, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    harness = harnessed(sinks.console(), state)
    harness.publish(2, harness.stage(2, [{"n": 1, "s": "[x]"}], [{"other": None}]))
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("out, sequence 2", "n", "[x]", "other"))


def test_console_is_silent_about_nothing(harnessed, state, capsys):
    harnessed(sinks.console(), state).publish(2)
    assert capsys.readouterr().out == ""


def test_discard_stages_nothing(harnessed, state):
    harness = harnessed(sinks.discard(), state)
    assert harness.stage(2, [{"n": 1}]) is None
    assert open_store(state).list() == []


def test_for_each_batch_needs_spark(harnessed, state):
    harness = harnessed(sinks.for_each_batch(print), state)
    with pytest.raises(Exception, match="needs Spark for its DataFrame"):
        harness.publish(2, harness.stage(2, [{"n": 1}]))


@pytest.mark.parametrize("factory", [sinks.collect, sinks.console, sinks.discard])
def test_every_sink_states_its_guarantee(factory):
    assert factory().guarantee in ("exactly once", "effectively once", "at least once")
    assert factory().guarantee.split()[0] in factory.__doc__.lower()


def test_a_partition_without_rows_stages_nothing(state):
    store = open_store(state)
    for sink in (sinks.collect(), sinks.for_each_batch(print)):
        partition = sink.open(Staging(store, "orders", "out", 2, "r1-0-0"))
        partition.write(pa.RecordBatch.from_pylist([], pa.schema([("n", pa.int64())])))
        assert partition.prepare() is None
        sink.publish(Publication(store, "orders", "out", 2, (), None))
