"""The graph: names, shapes and streams that lead somewhere, checked as it is built."""

from __future__ import annotations

import itertools

import pytest

from tidewheel import Job
from tidewheel._operators.graph import Port
from tidewheel.errors import ConfigError, GraphError
from tidewheel.sinks import discard

_names = itertools.count()


def source(name: str = "in"):
    return Job(f"graph-{next(_names)}", state="memory:unit-graph").source(name, lambda spark: None)


@pytest.mark.parametrize("name", ["", 3])
def test_an_operator_without_a_name_is_refused(name):
    with pytest.raises(GraphError, match="a map needs a name: pass a non-empty string as the first argument"):
        source().map(name, str)


@pytest.mark.parametrize("name", ["a b", "a/b", "-a", ".a", "ä", "a\n", "a\0"])
def test_a_name_that_is_unfit_for_a_file_is_refused(name):
    with pytest.raises(GraphError, match="may have letters, digits"):
        source().map(name, str)
    with pytest.raises(GraphError, match="a job's name may have letters, digits"):
        Job(name, state="memory:unit-graph")


@pytest.mark.parametrize("name", ["a", "A-1", "0.x_y"])
def test_names_may_have_letters_digits_and_three_signs(name):
    assert source().map(name, str).job.graph.nodes[1].name == name


def test_a_name_in_use_is_refused_with_its_owner():
    with pytest.raises(
        GraphError,
        match=r"named 'same' \(a filter at test_graph\.py:\d+ and a map at test_graph\.py:\d+\).* rename one of them$",
    ):
        source().filter("same", bool).map("same", str)
    with pytest.raises(GraphError, match=r"two steps named 'in' \(a source at .* and a sink at .*\)"):
        source().sink("in", discard())


def test_a_cell_of_a_notebook_can_be_declared_again():
    shell = {"numbers": source()}
    typed = 'numbers.key_by("by-n", lambda n: n).no_such_step("x")'
    with pytest.raises(AttributeError):
        exec(compile(typed, "<stdin>", "exec"), shell)
    with pytest.raises(
        GraphError, match=r"a key_by at <stdin>:1 and a key_by at <stdin>:1\).*create the job again, job = Job"
    ):
        exec(compile(typed, "<stdin>", "exec"), shell)


def test_an_error_of_an_operator_names_it():
    with pytest.raises(GraphError, match=r"step 'sum' \(aggregate\)"):
        source().map("m", str, returns=int).key_by("k", lambda n: n).aggregate(
            "sum", total=__import__("tidewheel").sum_("x")
        )


def test_a_refused_operator_leaves_the_graph_as_it_was():
    stream = source()
    with pytest.raises(GraphError):
        stream.map("m", str, returns=int).key_by("k", "absent")
    assert [node.name for node in stream.job.graph.nodes] == ["in", "m"]
    stream.key_by("k", "user")


def test_a_job_needs_a_source_and_every_stream_a_sink():
    with pytest.raises(GraphError, match="the job has no source"):
        Job("empty", state="memory:unit-graph").plan()
    stream = source()
    with pytest.raises(GraphError, match=r"step 'in' \(source\) has no sink; end the stream with .sink"):
        stream.job.plan()
    stream.sink("out", discard())
    stream.job.plan()
    stream.map("loose", str)
    with pytest.raises(GraphError, match=r"step 'loose' \(map\) has no sink"):
        stream.job.plan()


def test_a_stream_may_have_several_sinks_and_further_steps():
    stream = source().sink("one", discard()).sink("two", discard())
    stream.map("m", str).sink("three", discard())
    stream.job.plan()
    assert [node.name for node, _ in stream.job.graph.consumers(Port(0))] == ["one", "two", "m"]


def test_keys_have_names_until_the_stream_is_keyed_again():
    stream = source()
    keyed = stream.key_by("by-user", "user").map("m", str)
    again = keyed.key_by("by-function", len)
    graph = stream.job.graph
    assert [graph.nodes[s.port.node].key_name for s in (stream, keyed, again)] == [None, "user", "key"]


def test_a_job_has_one_dead_letter_sink():
    stream = source()
    stream.sink("out", discard())
    stream.job.dead_letter("dead", discard())
    with pytest.raises(GraphError, match="there is a dead-letter sink already, 'dead'"):
        stream.job.dead_letter("other", discard())


def test_the_fingerprint_is_that_of_names_kinds_and_edges():
    def build(first: str = "m", function=str):
        return source().map(first, function).sink("out", discard()).job.graph.fingerprint()

    assert build() == build(function=len)
    assert build() != build("n")


def test_a_graph_is_shown_in_the_words_of_the_program():
    stream = source()
    on_time = stream.assign_timestamps("at", "at").limit_out_of_orderness("bound", "1 s")
    late = on_time.late
    both = on_time.union("both", late)
    small, large = both.branch("cut", lambda row: row.n < 3, lambda row: row.n >= 3)
    small.union("all", large).sink("out", discard())
    lines = stream.job.graph.text().splitlines()
    assert lines[2:6] == [
        "bound  limit_out_of_orderness <- at",
        "both   union <- bound (on time), bound (late)",
        "cut    branch <- both",
        "all    union <- cut (output 0), cut (output 1)",
    ]


def test_a_graph_is_shown_as_text_and_as_a_chart():
    stream = source()
    stream.key_by("k", "user").stateful_map("count", lambda k, v, s: (v, s)).sink("out", discard())
    graph = stream.job.graph
    assert graph.text().splitlines() == [
        "in     source",
        "k      key_by <- in",
        "count  stateful_map <- k",
        "out    sink <- count",
    ]
    assert graph.mermaid().splitlines() == [
        "flowchart LR",
        '    n0["in<br/>source"]',
        '    n1["k<br/>key_by"]',
        '    n2[("count<br/>stateful_map")]',
        '    n3["out<br/>sink"]',
        "    n0 --> n1",
        "    n1 ==> n2",
        "    n2 --> n3",
    ]


def test_settings_of_a_job_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="power of two"):
        Job("j", state="memory:unit-graph", n_shards=48)
    with pytest.raises(GraphError, match="at least 1"):
        Job("j", state="memory:unit-graph", keep=0)


def test_a_dead_letter_sink_is_a_sink():
    with pytest.raises(GraphError, match="dead letter 'dead': 'folder/' is not a sink"):
        source().job.dead_letter("dead", "folder/")


def test_the_name_of_a_step_without_one_is_plain_text():
    """Reports and the history of runs encode names, and refuse subclasses of str."""
    job = Job("unnamed")
    job.source("in", lambda spark: None).map(lambda n: n).sink("out", discard())
    assert [type(node.name) for node in job.graph.nodes] == [str, str, str]
