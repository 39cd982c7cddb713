"""Codecs: values are read back unchanged, and values that cannot be stored give a clear error."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._state import codec as module
from tidewheel._state.codec import codec_named, decode_all, encode_all
from tidewheel.codecs import msgpack_codec, pickle_codec, register_codec
from tidewheel.errors import ConfigError, CorruptError, StateError, StepError


@dataclass
class Basket:
    items: list[str]
    total: float = 0.0


class Visit(msgspec.Struct):
    at: dt.datetime
    pages: dict[str, int]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(plain)
def test_plain_values_come_back(value: Any) -> None:
    codec = msgpack_codec()
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (Basket, Basket(["a"], 1.5)),
        (Visit, Visit(dt.datetime(2026, 1, 2, tzinfo=dt.UTC), {"home": 1})),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (dict[str, Basket], {"x": Basket([])}),
        (int | None, None),
    ],
)
def test_typed_values_come_back_as_their_type(type: Any, value: Any) -> None:
    codec = msgpack_codec(type)
    assert codec.decode(codec.encode(value)) == value


@given(st.lists(st.none() | st.integers(-(2**63), 2**63) | st.text(max_size=9) | st.lists(st.none() | st.floats())))
def test_many_values_are_stored_as_each_of_them_is(values: list[Any]) -> None:
    for codec in (msgpack_codec(), pickle_codec()):
        raws = encode_all(codec, values)
        assert raws == [None if value is None else codec.encode(value) for value in values]
        assert repr(decode_all(codec, raws)) == repr([None if raw is None else codec.decode(raw) for raw in raws])


def test_among_many_values_the_one_that_does_not_fit_is_named() -> None:
    with pytest.raises(StateError, match="declared type int"):
        decode_all(msgpack_codec(int), [b"\x01", b"\xa1a"])
    with pytest.raises(StepError, match="type object"):
        encode_all(msgpack_codec(), [1, object()])


def test_a_codec_travels_to_a_task() -> None:
    codec = pickle.loads(pickle.dumps(msgpack_codec(Basket)))
    assert codec.decode(codec.encode(Basket(["a"]))) == Basket(["a"])
    assert codec.name == "msgpack"


@pytest.mark.parametrize("value", [threading.Lock(), 2**70, object(), {"deep": [object()]}, "\ud800"])
def test_values_that_cannot_be_stored_are_refused_with_advice(value: Any) -> None:
    with pytest.raises(StepError, match=r"cannot be stored as msgpack.*choose another codec"):
        msgpack_codec().encode(value)


def test_a_type_that_cannot_be_stored_is_refused_when_the_codec_is_made() -> None:
    with pytest.raises(ConfigError, match="cannot be stored as msgpack"):
        msgpack_codec(dict[int, int] | dict[str, str])


def test_state_of_another_type_is_refused_with_the_mismatch() -> None:
    stored = msgpack_codec().encode({"items": "not a list"})
    with pytest.raises(StateError, match=r"declared type Basket.*items"):
        msgpack_codec(Basket).decode(stored)


@given(st.binary(max_size=50))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    with suppress(CorruptError):
        msgpack_codec().decode(data)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(CorruptError):
        msgpack_codec().decode(b"\x91" * 100_000)


def test_pickle_is_available_on_request() -> None:
    codec = pickle_codec()
    assert codec.name == "pickle"
    assert codec.decode(codec.encode({1: complex(1, 2)})) == {1: complex(1, 2)}
    with pytest.raises(StepError, match="cannot be pickled"):
        codec.encode(threading.Lock())
    with pytest.raises(CorruptError, match="do not unpickle"):
        codec.decode(b"no pickle")


def test_tools_refuse_pickle() -> None:
    with pytest.raises(StateError, match="would run code"):
        codec_named("pickle")


def test_a_codec_is_found_by_its_name() -> None:
    assert codec_named("msgpack").decode(b"\x01") == 1
    with pytest.raises(StateError, match=r"'avro', which is not known here \(known: msgpack"):
        codec_named("avro")


def test_a_codec_of_ones_own_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REGISTRY", dict(module._REGISTRY))
    register_codec("mine", lambda: msgpack_codec(int))
    assert codec_named("mine").decode(b"\x05") == 5
    for name in ("mine", "msgpack", "pickle"):
        with pytest.raises(ConfigError, match="exists already"):
            register_codec(name, msgpack_codec)
