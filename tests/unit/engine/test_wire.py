"""The wire: each message arrives once, at the task of its key, in order and unchanged."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.internals import shard_of
from tidewheel._engine import wire
from tidewheel._engine.report import Attempt
from tidewheel._engine.shards import shards_of, task_of
from tidewheel._state.key_batch import sorted_keys
from tidewheel._values import ANY, DICT, ROW, SCALAR, Batch, row_class, shape_of

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOAT = st.floats(allow_nan=False)


@dataclasses.dataclass
class Click:
    user: str
    amount: int


class Order(msgspec.Struct):
    item: str
    parts: list[int] = []


KEY_KINDS = {
    "str": TEXT,
    "int": INT64,
    "bytes": st.binary(max_size=8),
    "bool": st.booleans(),
    "float": FLOAT.map(lambda key: key + 0.0),
    "tuple": st.tuples(TEXT, INT64, st.none() | FLOAT.map(lambda key: key + 0.0)),
    "str or int": TEXT | INT64,
}
ARROW = {"str": pa.string(), "int": pa.int64(), "bytes": pa.binary(), "bool": pa.bool_(), "float": pa.float64()}

VALUE_KINDS = {
    "int": (SCALAR, INT64),
    "big int": (ANY, st.integers()),
    "float": (ANY, FLOAT),
    "text": (ANY, TEXT),
    "odd text": (ANY, st.text(max_size=4)),
    "none": (ANY, st.none()),
    "optional": (ANY, st.none() | INT64),
    "mixed": (ANY, INT64 | TEXT | FLOAT | st.booleans() | st.binary()),
    "nested": (ANY, st.lists(st.dictionaries(TEXT, INT64 | TEXT, max_size=2), max_size=2)),
    "dict": (DICT, st.dictionaries(st.sampled_from("abc"), INT64 | TEXT)),
    "row": (ROW, st.builds(row_class(("user", "~key")), TEXT, INT64)),
    "dataclass": (shape_of(Click), st.builds(Click, TEXT, INT64)),
    "struct": (ANY, st.builds(Order, TEXT, st.lists(INT64, max_size=2))),
}


@st.composite
def batches(draw, keyed: bool = False):
    shape, value = VALUE_KINDS[draw(st.sampled_from(sorted(VALUE_KINDS)))]
    made = draw(st.lists(value, min_size=1, max_size=6))
    times = draw(st.none() | st.lists(st.none() | INT64, min_size=len(made), max_size=len(made)))
    if not keyed and draw(st.booleans()):
        return Batch(shape, values=made, times=times)
    kind = draw(st.sampled_from(sorted(KEY_KINDS)))
    found = draw(st.lists(KEY_KINDS[kind], min_size=len(made), max_size=len(made)))
    column = kind in ARROW and draw(st.booleans())
    return Batch(
        shape,
        values=made,
        times=times,
        keys=None if column else found,
        key_column=pa.array(found, ARROW[kind]) if column else None,
    )


def crossed(batch: Batch) -> Batch:
    return wire.decode(pa.py_buffer(wire.encode(batch)), batch.shape)


def messages(batch: Batch) -> list[tuple]:
    keys = batch.keys if batch.keyed else [None] * len(batch)
    times = batch.times if batch.times is not None else [None] * len(batch)
    # Types are compared too: 1, 1.0 and True are equal to Python.
    return [
        (type(key), key, type(value), value, time) for key, value, time in zip(keys, batch.values, times, strict=True)
    ]


@given(batches())
def test_any_batch_of_values_comes_back(batch):
    back = crossed(batch)
    assert messages(back) == messages(batch)
    assert back.keyed == batch.keyed
    assert (back.times is None) == (batch.times is None)
    assert back.shape == batch.shape


@given(st.sampled_from(sorted(KEY_KINDS)), st.data())
def test_any_batch_of_columns_comes_back_as_columns(kind, data):
    rows = data.draw(st.lists(st.tuples(TEXT, st.none() | INT64, st.lists(FLOAT, max_size=2)), min_size=1, max_size=5))
    names = ["~key", "~time", "list"]
    columns = pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], pa.string()),
            pa.array([row[1] for row in rows], pa.int64()),
            pa.array([row[2] for row in rows], pa.list_(pa.float64())),
        ],
        names,
    )
    keys = data.draw(st.none() | st.lists(KEY_KINDS[kind], min_size=len(rows), max_size=len(rows)))
    times = data.draw(st.none() | st.lists(INT64, min_size=len(rows), max_size=len(rows)))
    batch = Batch(DICT, columns=columns, keys=keys, times=times)
    back = crossed(batch)
    assert back.has_columns
    assert back.columns.equals(columns)
    assert messages(back) == messages(batch)


def test_columns_of_one_name_are_both_carried():
    columns = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], ["a", "a"])
    assert crossed(Batch(ROW, columns=columns, keys=["k"])).columns.equals(columns)


def test_columns_made_of_undeclared_values_do_not_replace_them():
    batch = Batch(ANY, values=[Click("ada", 1)])
    assert batch.columns.num_columns == 2
    assert crossed(batch.keyed_by(keys=["ada"])).values == [Click("ada", 1)]


@given(batches(keyed=True), st.integers(1, 5), st.sampled_from([1, 4, 64]))
def test_every_message_reaches_the_task_of_its_key_in_order(batch, parallelism, n_shards):
    sent = list(wire.blocks(batch, True, n_shards, parallelism, 0))
    assert [target for target, _ in sent] == sorted({target for target, _ in sent})
    arrived = {target: wire.decode(pa.py_buffer(payload), batch.shape) for target, payload in sent}
    for target in range(parallelism):
        meant = [
            message
            for message, key in zip(messages(batch), batch.keys, strict=True)
            if task_of(shard_of(key, n_shards), parallelism) == target
        ]
        assert (messages(arrived[target]) if target in arrived else []) == meant


def test_messages_without_a_key_go_to_the_task_of_the_same_number():
    ((target, _),) = wire.blocks(Batch(SCALAR, values=[1]), False, 64, 2, task=5)
    assert target == 1


def test_an_empty_batch_sends_nothing():
    assert list(wire.blocks(Batch(SCALAR, values=[]), True, 64, 2, 0)) == []


attempts = st.builds(Attempt, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**63 - 1))
wire_rows = st.builds(wire.Row, st.integers(0, 9), st.integers(-1, 9), attempts, st.integers(0, 2**63 - 1), st.binary())


@given(st.lists(wire_rows, max_size=5))
def test_wire_rows_pass_through_spark_as_they_are(rows):
    batch = wire.record_batch(rows)
    assert batch.schema == wire.SCHEMA
    assert [row._replace(payload=row.payload.to_pybytes()) for row in wire.unpacked([batch])] == rows


@pytest.mark.parametrize("kind", sorted(KEY_KINDS))
@pytest.mark.parametrize("n_shards", [1, 64, 65536])
def test_the_shards_of_a_batch_are_those_of_its_keys(kind, n_shards):
    @given(st.lists(KEY_KINDS[kind], min_size=1, max_size=8))
    def check(keys):
        expected = [shard_of(key, n_shards) for key in keys]
        assert shards_of(Batch(ANY, values=keys, keys=keys), n_shards).tolist() == expected
        if kind in ARROW:
            column = pa.array(keys, ARROW[kind])
            assert shards_of(Batch(ANY, values=keys, key_column=column), n_shards).tolist() == expected
            sliced = pa.array([keys[0], *keys], ARROW[kind]).slice(1)
            assert shards_of(Batch(ANY, values=keys, key_column=sliced), n_shards).tolist() == expected

    check()


def test_shards_are_whole_numbers_of_numpy():
    assert shards_of(Batch(ANY, values=[1], keys=[1]), 64).dtype == np.int64


MANY = 12_000


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@pytest.mark.parametrize("distinct", [7, MANY])
def test_each_target_gets_its_own_messages_and_no_key_of_another(kind, distinct):
    keys = pa.array([f"user-{n % distinct}" for n in range(MANY)], pa.string()).cast(kind)
    numbers = pa.RecordBatch.from_arrays([pa.array(range(MANY))], ["n"])
    batch = Batch(SCALAR, columns=numbers, key_column=keys)
    sent = list(wire.blocks(batch, True, 32, 3, 0))
    assert [target for target, _ in sent] == [0, 1, 2]
    seen: dict[bytes | str, int] = {}
    arrived = []
    for target, payload in sent:
        back = wire.decode(pa.py_buffer(payload), SCALAR)
        assert pa.types.is_dictionary(back.key_data.type) == (distinct < MANY)
        if distinct < MANY:
            assert set(back.key_data.dictionary.to_pylist()) == set(back.keys)
        assert all(seen.setdefault(key, target) == target for key in back.keys)
        assert {shard_of(key, 32) % 3 for key in set(back.keys)} == {target}
        arrived += zip(back.keys, back.values, strict=True)
    assert sorted(arrived, key=lambda pair: pair[1]) == list(zip(keys.to_pylist(), range(MANY), strict=True))


def test_blocks_with_and_without_a_dictionary_of_keys_are_joined():
    plain = Batch(SCALAR, values=[1, 2], key_column=pa.array(["a", "b"]))
    coded = Batch(SCALAR, values=[3, 4], key_column=pa.array(["b", "c"]).dictionary_encode())
    assert Batch.joined([plain, coded]).keys == ["a", "b", "b", "c"]
    both = Batch.joined([coded, Batch(SCALAR, values=[5], key_column=pa.array(["a"]).dictionary_encode())])
    assert both.key_data.dictionary.to_pylist() == ["b", "c", "a"]
    assert both.key_column.to_pylist() == both.keys == ["b", "c", "a"]
    assert both.take([2, 0]).keys == ["a", "b"]


def test_a_dictionary_of_keys_opens_the_same_keys_in_the_same_order():
    keys = pa.array(["b", "a", "b", "d", "c"])
    with_more = pa.DictionaryArray.from_arrays(
        pa.array([1, 0, 1, 3, 2], pa.int32()), pa.array(["a", "b", "c", "d", "never"])
    )
    one, other = sorted_keys(keys, 4), sorted_keys(with_more, 4)
    assert (one.keys, one.places(), one.stored, one.shards) == (other.keys, other.places(), other.stored, other.shards)


def test_large_blocks_are_compressed_and_come_back():
    columns = pa.RecordBatch.from_arrays([pa.array([7] * 100_000)], ["n"])
    payload = wire.encode(Batch(SCALAR, columns=columns))
    assert len(payload) < columns.nbytes / 10
    assert wire.decode(pa.py_buffer(payload), SCALAR).columns.equals(columns)
