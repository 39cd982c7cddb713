"""Streams: which steps they have, and which other streams a step accepts."""

from __future__ import annotations

import pytest

from tidewheel import (
    Job,
    KeyedStream,
    StatefulLogic,
    StoredJob,
    Stream,
    WindowedStream,
    codecs,
    count,
    sinks,
    sources,
    tumbling,
)
from tidewheel.errors import GraphError
from tidewheel.testing import run_in_memory


def source(job: Job, name: str = "in") -> Stream:
    return job.source(name, lambda spark: None)


def job(name: str = "a") -> Job:
    return Job(name, state="memory:unit-streams")


@pytest.mark.parametrize("other", [1, None, "in", job()])
def test_a_union_with_a_value_other_than_a_stream_is_refused(other):
    with pytest.raises(GraphError, match=r"step 'u': it takes streams of this job, not "):
        source(job()).union("u", other)


@pytest.mark.parametrize(
    ("other", "named"), [("b", "the job 'b'"), ("a", "another job of that name")], ids=["other", "same-name"]
)
def test_a_union_with_a_stream_of_another_job_is_refused(other, named):
    with pytest.raises(GraphError, match=f"step 'u': it takes streams of its own job 'a', .* belongs to {named}"):
        source(job()).union("u", source(job(other)))


@pytest.mark.parametrize(
    "join",
    [
        lambda left, right: left.interval_join("j", right),
        lambda left, right: left.window_join("j", right, tumbling("10 ns")),
        lambda left, right: left.as_of_join("j", right),
    ],
    ids=["interval", "window", "as-of"],
)
def test_a_join_accepts_only_a_keyed_stream_of_its_own_job(join):
    left = source(job()).key_by("k", "user")
    with pytest.raises(GraphError, match=r"step 'j': it takes streams of its own job 'a', .* the job 'b'"):
        join(left, source(job("b")).key_by("k", "user"))
    with pytest.raises(GraphError, match="step 'j': it takes streams of this job, not 1"):
        join(left, 1)
    with pytest.raises(GraphError, match="step 'j': a join is of two streams with keys; put key_by before both"):
        join(left, source(left.job, "other"))
    assert [node.name for node in left.job.graph.nodes] == ["in", "k", "other"]


def test_an_unknown_join_is_refused_with_the_known_ones():
    left, right = source(job()).key_by("k", "user"), source(job(), "other").key_by("o", "user")
    with pytest.raises(
        GraphError, match=r"step 'j': how= must be one of inner, left, right, full, not 'outer'; .*\"full\""
    ):
        left.interval_join("j", right, how="outer")
    with pytest.raises(GraphError, match=r"not 'left_outer'; write how=\"left\"$"):
        left.interval_join("j", right, how="left_outer")
    with pytest.raises(GraphError, match=r"step 'j': how= must be one of inner, left, not 'outer'$"):
        left.as_of_join("j", right, how="outer")


def test_a_length_instead_of_windows_is_refused_with_the_line_to_write():
    with pytest.raises(GraphError, match=r"step 'w': '1 hour' is not a kind of windows; write tumbling\('1 hour'\)"):
        source(job()).key_by("k", "user").window("w", "1 hour", n=count())


@pytest.mark.parametrize("step", ["stateful_map", "stateful_op", "aggregate", "reduce", "window", "interval_join"])
def test_a_step_with_state_before_key_by_is_refused(step):
    stream = source(job())
    with pytest.raises(GraphError, match=f"{step} needs a stream with keys: put key_by first"):
        getattr(stream, step)
    assert not hasattr(stream, step)


def test_a_step_that_no_stream_has_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'Stream' object has no attribute 'explode'"):
        source(job()).explode  # noqa: B018
    with pytest.raises(AttributeError, match="'KeyedStream' object has no attribute 'late'"):
        source(job()).key_by("k", "user").late  # noqa: B018


def test_steps_keep_keys_and_only_windows_have_late_messages():
    keyed = source(job()).assign_timestamps("t", "at", unit="ns").key_by("k", "user")
    windows = keyed.window("w", tumbling("10 ns"), n=count())
    assert type(keyed.map("m", str)) is KeyedStream
    assert type(windows) is WindowedStream
    assert type(windows.filter("f", bool)) is KeyedStream
    assert type(windows.late) is KeyedStream


def test_a_logic_may_say_some_of_its_types_or_none():
    class Counting(StatefulLogic[int]):
        pass

    class Telling(StatefulLogic[int, str, str]):
        pass

    assert issubclass(Counting, StatefulLogic)
    assert issubclass(Telling, StatefulLogic)


def swapped(key: str, value: dict, total: int) -> tuple[int, str]:
    return total, str(value)


def alike(key: str, value: dict, total: int) -> tuple[int, int | None]:
    return total, total


def numbers(key: str, value: dict, total: float) -> tuple[float, int]:
    return total, 1


def objects(key: str, value: dict, total: object) -> tuple[object, str]:
    return total, "1"


def test_a_function_that_returns_its_state_first_is_refused():
    keyed = source(job()).key_by("k", "user")
    with pytest.raises(GraphError, match=r"'s': its function returns the output first .* write tuple\[str, int\]"):
        keyed.stateful_map("s", swapped, default=0)
    for number, right in enumerate((alike, numbers, objects)):
        assert keyed.stateful_map(f"r{number}", right, default=0)
    assert keyed.stateful_map("l", lambda key, value, state: (state, value), default=0)


def test_streams_and_stored_jobs_have_a_readable_repr():
    one = Job("seen", state="memory:unit-streams-seen")
    rows = source(one)
    keyed = rows.key_by("by-user", "user")
    assert repr(rows) == "<Stream after 'in' of job 'seen'>"
    assert repr(keyed.sink("out", sinks.collect())) == "<KeyedStream after 'by-user' of job 'seen'>"
    run_in_memory(one, {"in": [{"user": "ada"}]}, state=one.state)
    assert repr(StoredJob("seen", state=one.state)) == "<StoredJob 'seen', state at memory:unit-streams-seen>"


def test_a_function_with_a_wrong_signature_is_refused_in_the_graph():
    job = Job("arity")
    rows = job.source("in", sources.iterable([]))
    with pytest.raises(GraphError, match=r"'m': its function is called with value, and .*\(a, b\) cannot be"):
        rows.map("m", lambda a, b: a)
    with pytest.raises(GraphError, match="'c': its function is called with key, value and state"):
        rows.key_by("k", "user").stateful_map("c", lambda state, value: (state, value))
    assert rows.map("s", str).map("i", int) is not None, "what does not tell its arguments is believed"


@pytest.mark.parametrize(
    ("step", "number"),
    [
        (lambda s: s.split("b", 2, lambda row: 0), 2),
        (lambda s: s.branch("b", bool, bool, bool), 3),
        (lambda s: s.clone(), 2),
    ],
    ids=["split", "branch", "clone"],
)
def test_using_a_tuple_as_a_stream_explains_how_to_choose(step, number, request):
    streams = step(source(job()))
    called = request.node.callspec.id
    names = ", ".join(f"stream_{each}" for each in range(number))
    choice = rf"{called} gives {number} streams: {names} = ….{called}\(…\), and continue with stream_0; "
    with pytest.raises(AttributeError, match=f"no 'key_by' here: {choice}"):
        streams.key_by("k", "user")
    with pytest.raises(GraphError, match=f"step 'u': it takes one stream where {choice}"):
        streams[0].union("u", streams)
    assert not hasattr(streams, "__no_such__")
    assert isinstance(streams, tuple)
    assert all(isinstance(stream, Stream) for stream in streams)


_WITH_A_SECOND_OUTPUT = {
    "limit_out_of_orderness": (lambda s: s.assign_timestamps("t", "at").limit_out_of_orderness("b", "1 s"), "late"),
    "generate_epochs": (lambda s: s.assign_timestamps("t", "at").generate_epochs("b", lambda _, last: None), "late"),
    "event_time": (lambda s: s.event_time("at", max_delay="1 s"), "late"),
    "decode": (lambda s: s.decode("b", codecs.json()), "broken"),
}


@pytest.mark.parametrize("step", _WITH_A_SECOND_OUTPUT)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_second_output_is_an_attribute_of_the_stream(step, keyed):
    start = source(job())
    make, second = _WITH_A_SECOND_OUTPUT[step]
    stream = make(start.key_by("k", "user") if keyed else start)
    other = getattr(stream, second)
    assert (stream.port.node, stream.port.port, other.port.node, other.port.port) == (
        stream.port.node,
        0,
        stream.port.node,
        1,
    )
    assert isinstance(stream, KeyedStream) is isinstance(other, KeyedStream) is keyed
    assert type(stream.map("m", lambda value: value)) is (KeyedStream if keyed else Stream)


@pytest.mark.parametrize("step", _WITH_A_SECOND_OUTPUT)
def test_unpacking_a_second_output_still_works_with_a_warning(step):
    make, second = _WITH_A_SECOND_OUTPUT[step]
    stream = make(source(job()))
    with pytest.warns(DeprecationWarning, match=rf"unpacking the streams of \w+ is deprecated .* attribute \.{second}"):
        first, other = stream
    assert (first.port, other.port) == (stream.port, getattr(stream, second).port)
    with pytest.warns(DeprecationWarning, match="unpacking"):
        assert stream[1].port == other.port


def test_named_branches_are_attributes_and_a_misspelt_one_is_reported():
    sizes = source(job()).branch("size", low=lambda row: True, high=lambda row: False)
    assert (sizes.low.port.port, sizes.high.port.port) == (0, 1)
    with pytest.raises(AttributeError, match=r"branch 'size' has no stream 'hihg'; it has \.low and \.high"):
        sizes.hihg  # noqa: B018
    with pytest.raises(GraphError, match="'both': a branch takes predicates with names or without"):
        source(job()).branch("both", bool, low=bool)


@pytest.mark.parametrize("upgrade", [lambda state: state, {"a": 1}])
@pytest.mark.parametrize("step", ["stateful_map", "stateful_op", "reduce"])
def test_an_upgrade_with_a_wrong_signature_is_refused_with_an_example(step, upgrade):
    function = {"reduce": lambda one, other: one}.get(step, lambda first, second, third: None)
    told = r"step 'x': upgrade= is called with a stored state .*lambda state, version: .*(cannot be|is not a function)"
    with pytest.raises(GraphError, match=told):
        getattr(source(job()).key_by("k", "user"), step)("x", function, version=2, upgrade=upgrade)


def test_an_invalid_upgrade_is_shown_shortened():
    keyed = source(job()).key_by("k", "user")
    with pytest.raises(GraphError, match="is not a function") as refused:
        keyed.stateful_map("x", lambda first, second, third: None, version=2, upgrade=dict.fromkeys(range(9999)))
    assert len(str(refused.value)) < 600
