"""expect: a condition for every record, and what happens to a record that fails it."""

from __future__ import annotations

import logging

import pyarrow.compute as pc
import pytest

from tidewheel import Job, sinks, sources
from tidewheel.errors import GraphError
from tidewheel.testing import MemoryRun, run_in_memory
from unit.operators.running import failure, run

ROWS = [{"user": "ada", "cents": 3}, {"user": "bob", "cents": -1}, {"user": "cem", "cents": None}]
FUNCTION = pytest.param(lambda row: (row.cents or 0) > 0, id="function")
EXPRESSION = pytest.param(pc.field("cents") > 0, id="expression")
CONDITIONS = pytest.mark.parametrize("condition", [FUNCTION, EXPRESSION])


def expected(condition, otherwise, **options):
    return run(lambda s: s.expect("paid", condition, otherwise=otherwise), ROWS, plain=False, **options)


@CONDITIONS
def test_drop_removes_records_that_fail(condition):
    assert expected(condition, "drop").records == ROWS[:1]


@CONDITIONS
def test_warn_passes_all_records_on_and_logs_their_number(condition, caplog):
    with caplog.at_level(logging.WARNING):
        assert expected(condition, "warn").records == ROWS
    (line,) = [each.getMessage() for each in caplog.records if "expectation" in each.getMessage()]
    assert "step 'paid': 2 records of commit" in line


@CONDITIONS
def test_dead_sends_records_that_fail_to_the_dead_letters(condition):
    ran = expected(condition, "dead", dead_letter=True)
    assert ran.records == ROWS[:1]
    assert [(row["step"], "does not meet the expectation" in row["error"]) for row in ran.dead] == [("paid", True)] * 2
    assert '"user": "bob"' in ran.dead[0]["record"].replace('":"', '": "')


@CONDITIONS
@pytest.mark.parametrize("dead_letter", [False, True])
def test_stop_names_the_record_also_with_a_dead_letter_sink(condition, dead_letter):
    text = failure(lambda s: s.expect("paid", condition, otherwise="stop"), ROWS, plain=False, dead_letter=dead_letter)
    assert text.startswith("step 'paid', record Row(user='bob', cents=-1): it does not meet the")


def test_stop_names_the_key_and_commits_nothing_of_the_batch():
    out = sinks.collect()
    job = Job("stopped", state="memory:expect-stop")
    orders = job.source("in", sources.iterable(ROWS)).key_by("by-user", "user")
    orders.expect("paid", lambda row: row.cents is None or row.cents > 0).sink("out", out)
    with pytest.raises(Exception, match="step 'paid', key 'bob'"):
        run_in_memory(job)
    assert out.records == []


@CONDITIONS
@pytest.mark.parametrize("otherwise", ["drop", "warn", "dead"])
def test_records_that_fail_are_counted(condition, otherwise):
    job = Job(f"counted-{otherwise}", state=f"memory:expect-{type(condition).__name__}")
    orders = job.source("in", sources.dataframe(lambda spark: None))
    orders.expect("paid", condition, otherwise=otherwise).sink("out", sinks.discard())
    job.dead_letter("dead", sinks.discard())
    with MemoryRun(job) as memory:
        memory.batch({"in": ROWS})
        memory.batch({"in": ROWS[1:2]})
        assert memory.run.head.counts["paid/failed"] == 3


def test_keys_stay_with_their_records():
    ran = run(
        lambda s: s.key_by("k", lambda n: f"key-{n}").expect("odd", lambda n: n % 2, otherwise="drop"), [1, 2, 3, 4]
    )
    assert ran.by_key() == {"key-1": [1], "key-3": [3]}


def test_a_condition_that_raises_rejects_the_record_as_filter_does():
    text = failure(lambda s: s.expect("paid", lambda n: n > "a", otherwise="warn"), [7])
    assert text.startswith("step 'paid', record 7: TypeError")


def test_dead_without_a_dead_letter_sink_is_refused_before_the_run():
    job = Job("nowhere")
    job.source("in", sources.iterable(ROWS)).expect("paid", pc.field("cents") > 0, otherwise="dead").sink(
        "out", sinks.discard()
    )
    with pytest.raises(GraphError, match=r"step 'paid': otherwise='dead' needs .*job\.dead_letter"):
        job.plan()


@pytest.mark.parametrize("otherwise", ["ignore", None])
def test_another_word_for_otherwise_is_refused(otherwise):
    with pytest.raises(GraphError, match="step 'paid': otherwise= is one of drop, dead, stop, warn, not"):
        Job("word").source("in", sources.iterable(ROWS)).expect("paid", lambda row: True, otherwise=otherwise)


def test_a_condition_found_while_the_program_was_built_is_refused():
    with pytest.raises(GraphError, match="expect was given True"):
        Job("constant").source("in", sources.iterable(ROWS)).expect("paid", True)
