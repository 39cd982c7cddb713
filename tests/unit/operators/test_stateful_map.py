"""stateful_map: one message in, one out, with a state per key."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, deque
from datetime import datetime
from typing import Annotated, Any, NamedTuple, Optional, TypedDict
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Row
from tidewheel._state.codec import pickle_codec
from tidewheel.errors import GraphError, StepError
from unit.operators.running import failure, run


@dataclasses.dataclass
class Total:
    count: int = 0
    sum: int = 0


@dataclasses.dataclass
class Empty:
    pass


@dataclasses.dataclass
class Unresolved:
    other: NotThere | None = None  # noqa: F821


class Color(enum.Enum):
    RED = 1


class Seen(TypedDict):
    n: int


def test_among_many_messages_the_one_that_fails_is_named():
    def refuses(key, row, total):
        if row.n == 17_001:
            raise ValueError("not this one")
        return total, total + row.n

    rows = [{"user": n % 30, "n": n} for n in range(20_000)]
    error = failure(lambda s: s.key_by("k", "user").stateful_map("sum", refuses, default=0), rows, plain=False)
    assert "step 'sum', key 21, record" in error
    assert "n=17001" in error
    assert "not this one" in error


def keyed(function, **options):
    return lambda s: s.key_by("k", lambda n: n % 2).stateful_map("op", function, **options)


def summed(key, n, total):
    return total + n, total + n


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=8), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 10_000]),
)
def test_running_sums_equal_a_dict_for_any_batches_splits_and_tasks(batches, parallelism, partitions, many):
    def step(key, row, total):
        # 7 drops the key.
        return total + row.n, None if row.n == 7 else total + row.n

    rows = [[{"user": user, "n": n} for user, n in batch] for batch in batches]
    # One key's messages after the other's, or as they come: it depends on how many there are.
    with mock.patch("tidewheel._state.key_batch._MANY", many):
        ran = run(
            lambda s: s.key_by("k", "user").stateful_map("sum", step, default=0),
            *rows,
            plain=False,
            parallelism=parallelism,
            partitions=1 if partitions > 2 else partitions,
        )
    state: dict[int, int] = {}
    out: dict[int, list[int]] = {}
    for user, n in (message for batch in batches for message in batch):
        total = state.pop(user, 0) + n
        out.setdefault(user, []).append(total)
        if n != 7:
            state[user] = total
    assert ran.states.get("sum", {}) == state
    assert ran.by_key("user") == out


def test_none_drops_the_key_and_the_next_message_starts_over():
    ran = run(keyed(lambda k, n, t: (t + n, None if t + n > 5 else t + n), default=0), [1, 3, 5, 7], [1])
    assert ran.values() == [1, 4, 9, 7, 1]
    assert ran.states == {"op": {1: 1}}


def test_outputs_may_be_none():
    assert run(keyed(lambda k, n, t: (None, t + n), default=0), [1, 2]).values() == [None, None]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"default": 0}, 0),
        ({"default": list}, []),
        ({"default": {"a": [1]}}, {"a": [1]}),
        ({"state": int}, 0),
        ({"state": dict[str, int]}, {}),
        ({"state": Total}, Total()),
        ({"state": Optional[int]}, None),  # noqa: UP045
        ({"state": int | None}, None),
        ({"state": Any}, None),
        ({}, None),
        ({"default": lambda: "made"}, "made"),
    ],
)
def test_a_new_key_gets_the_default(options, first):
    seen = []
    run(keyed(lambda k, n, state: (seen.append(state), state), **options), [1, 2])
    assert seen == [first, first]


def test_a_mutable_default_is_each_keys_own():
    ran = run(keyed(lambda k, n, state: (None, [*state, n]), default=[0]), [1, 2, 3])
    assert ran.states == {"op": {1: [0, 1, 3], 0: [0, 2]}}
    ran = run(keyed(lambda k, n, state: (state.append(n), state), default=[0]), [1, 2, 3])
    assert ran.states == {"op": {1: [0, 1, 3], 0: [0, 2]}}


def test_a_type_that_cannot_be_made_from_nothing_needs_a_default():
    @dataclasses.dataclass
    class Needy:
        x: int

    with pytest.raises(GraphError, match="step 'op': there is no empty value of type Needy for the state of a new key"):
        run(keyed(summed, state=Needy))


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        (int, ""),
        (int, str),
        (str, 0),
        (int, 0.5),
        (Total, {}),
        (dict[str, int], Total()),
        (int | None, ""),
        (list[int], {}),
    ],
)
def test_a_default_of_another_type_is_refused_in_the_graph(declared, default):
    with pytest.raises(GraphError, match=r"step 'op': its state is declared as .*, and begins as .*default="):
        run(keyed(summed, state=declared, default=default))


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        (float, 0),
        (Any, ""),
        (int | str, ""),
        (Total, Total),
        (Total, Total()),
        (list[int], ()),
        (dict, Counter()),
        (tuple[int, int], ()),
        (Color, Color.RED),
        (Seen, {}),
        (bool, 0),
        (deque, deque()),
        (dict[str, int], lambda: {}),
        (Annotated[int, msgspec.Meta(gt=0)], 0),
        (Annotated[int, msgspec.Meta(gt=0)] | None, 0),
    ],
)
def test_a_default_that_can_become_the_declared_type_is_accepted(declared, default):
    run(keyed(summed, state=declared, default=default))


@pytest.mark.parametrize("default", [Total(), Total])
def test_a_record_as_default_declares_the_type(default):
    def step(key, n, total):
        return total.sum + n, Total(total.count + 1, total.sum + n)

    ran = run(keyed(step, default=default), [1, 3])
    assert ran.values() == [1, 4]


class Rare(msgspec.Struct, array_like=True):
    n: int = 0


@dataclasses.dataclass
class Tagged:
    n: int = 0
    seen: Any = (1, frozenset({2}))


@pytest.mark.parametrize("dead_letter", [False, True])
@pytest.mark.parametrize("default", [Empty(), Empty, Total(), Rare(), Unresolved()])
@pytest.mark.parametrize(
    "kept", [7, 0.5, "text", {"n": 1}, {"count": 1, "sum": 2}, {}, [1, (2, 3)], {4, 5}, datetime(2026, 3, 1)]
)
def test_a_default_record_that_is_never_stored_may_be_incomplete(kept, default, dead_letter):
    def step(key, n, state):
        return f"{type(state).__name__} {state!r}", kept

    ran = run(keyed(step, default=default), [2], [4, 6], dead_letter=dead_letter)
    begun = default() if isinstance(default, type) else default
    assert ran.values() == [f"{type(state).__name__} {state!r}" for state in (begun, kept, kept)]
    assert not ran.dead


@pytest.mark.parametrize("dead_letter", [False, True])
@pytest.mark.parametrize("record", [Total, Rare, Tagged])
def test_a_default_record_is_stored_next_to_other_values(record, dead_letter):
    def step(key, n, state):
        return repr(state), record(n) if isinstance(state, dict) else {"n": n}

    ran = run(keyed(step, default=record), [2], [4], [6], [8], dead_letter=dead_letter)
    assert ran.values() == [repr(state) for state in (record(), {"n": 2}, record(4), {"n": 6})]


def test_a_default_record_without_a_msgpack_form_is_refused_at_storing():
    with pytest.raises(StepError, match="Unresolved needs a declared type"):
        run(keyed(lambda key, n, state: (n, state), default=Unresolved()), [1])


def test_the_annotation_of_the_state_declares_its_type():
    def step(key: int, n: int, total: Total) -> tuple[int, Total]:
        return total.sum + n, Total(total.count + 1, total.sum + n)

    ran = run(keyed(step), [1, 2], [3, 4])
    assert ran.values() == [1, 2, 4, 6]
    assert ran.states == {"op": {1: {"count": 2, "sum": 4}, 0: {"count": 2, "sum": 6}}}


@pytest.mark.parametrize("wrong", [3, None, (1,), (1, 2, 3), object()])
def test_a_result_other_than_a_pair_is_refused_with_the_expected_shape(wrong):
    text = failure(keyed(lambda k, n, t: wrong, default=0), [1])
    assert text.startswith("step 'op', key 1, record 1: the function ")


def test_an_unpacking_error_in_the_function_itself_is_its_own():
    def step(key, n, total):
        left, right = (1, 2, 3)
        return left, right

    assert "record 1: ValueError: too many values" in failure(keyed(step), [1])


def test_an_error_names_step_key_and_record_and_its_batch_does_not_count():
    def step(key, n, total):
        return 10 // (n - 4), total + n

    text = failure(keyed(step, default=0), [1], [2, 4])
    assert text.startswith("step 'op', key 0, record 4: ZeroDivisionError: integer division or modulo by zero (")


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rejected_records_do_not_change_state_or_keys_of_others(parallelism):
    def step(key, n, seen):
        seen.append(n)  # In place, before it fails.
        if n >= 10:
            raise ValueError("too large")
        return sum(seen), seen

    ran = run(
        keyed(step, default=list),
        [1, 11, 2, 10, 3, 4, 13],
        [12, 5, 6],
        dead_letter=True,
        parallelism=parallelism,
    )
    assert ran.states == {"op": {1: [1, 3, 5], 0: [2, 4, 6]}}
    assert ran.by_key() == {1: [1, 4, 9], 0: [2, 6, 12]}
    assert sorted((row["key"], row["record"]) for row in ran.dead) == [
        ("0", "10"), ("0", "12"), ("1", "11"), ("1", "13"),
    ]  # fmt: skip


def test_rejecting_many_records_costs_no_more_than_handling_them():
    # In the square of their number this would take minutes.
    ran = run(keyed(lambda k, n, t: (1 // (n % 2), t), default=0), range(20_000), dead_letter=True)
    assert len(ran.dead) == 10_000
    assert len(ran.records) == 10_000


def test_a_state_that_cannot_be_stored_names_operator_key_and_record():
    text = failure(keyed(lambda k, n, t: (1, {"x": object()})), [3])
    assert "step 'op', key 1, record 3: a state value of type dict cannot be stored" in text


def test_another_codec_can_be_chosen():
    def step(key, n, seen):
        return len(seen | {n}), seen | {n}

    ran = run(keyed(step, default=frozenset, codec=pickle_codec()), [1, 3], [1, 5])
    assert ran.states == {"op": {1: frozenset({1, 3, 5})}}


def test_several_operators_of_one_level_keep_their_own_state():
    ran = run(lambda s: keyed(summed, default=0)(s).stateful_map("second", summed, default=100), [1, 2, 3])
    assert ran.states == {"op": {1: 4, 0: 2}, "second": {1: 105, 0: 102}}


@pytest.mark.parametrize("returned", ["ab", {"a", "b"}, {"a": 1, "b": 2}, [1, 2], 7, None, (1,), (1, 2, 3)])
@pytest.mark.parametrize("dead_letter", [False, True])
def test_only_a_pair_is_accepted_and_the_error_names_function_and_step(returned, dead_letter):
    def wrong(key, value, state):
        return returned

    def build(stream):
        return stream.key_by("by", lambda value: "k").stateful_map("sum", wrong, default=0)

    if dead_letter:
        (dead,) = run(build, [1], dead_letter=True).dead
        assert dead["step"] == "sum"
        text = dead["error"]
    else:
        text = failure(build, [1])
        assert text.startswith("step 'sum', key 'k', record 1: ")
    assert "wrong must return a 2-tuple (output, new_state), not" in text


def test_a_named_tuple_of_two_is_a_tuple():
    class Pair(NamedTuple):
        output: int
        state: int

    def build(stream):
        return stream.key_by("by", lambda value: "k").stateful_map("sum", lambda k, v, s: Pair(v, v), default=0)

    assert run(build, [1]).values() == [1]


def test_a_function_that_reads_one_field_and_fails_shows_the_whole_record():
    text = failure(
        lambda s: s.key_by("k", "user").stateful_map("sum", lambda key, row, total: (1 // row.amount, 0)),
        [{"user": "ada", "amount": 0, "place": "Rome"}],
        value=Row,
    )
    assert "user='ada', amount=0, place='Rome'" in text
