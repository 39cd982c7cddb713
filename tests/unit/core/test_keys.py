"""Keys as bytes: stored keys are read back equal, and all ways to compute a shard agree."""

from __future__ import annotations

import datetime
import decimal
import enum
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from support.internals import from_stored, shard_of, to_stored
from tidewheel._core.keys import check_n_shards, shard_of_stored
from tidewheel.errors import ConfigError, StepError

INT64 = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.one_of(st.text(), INT64, st.binary(), st.booleans(), st.floats(allow_nan=False))
KEYS = st.one_of(
    PLAIN, st.recursive(st.one_of(PLAIN, st.none()), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
)


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@given(KEYS.filter(lambda key: key is not None))
def test_a_stored_key_comes_back_equal_and_of_its_type(key):
    back = from_stored(to_stored(key))
    assert back == key
    assert type(back) is type(key)
    assert to_stored(back) == to_stored(key)


@given(PLAIN, PLAIN)
def test_keys_of_one_type_have_the_same_bytes_exactly_when_they_are_equal(left, right):
    if type(left) is type(right):
        assert (to_stored(left) == to_stored(right)) == (left == right)
    else:
        assert to_stored(left) != to_stored(right)


def test_text_bytes_and_numbers_that_look_alike_are_different_keys():
    assert len({to_stored(key) for key in ("1", b"1", 1, 1.0, True, ("1",))}) == 6


def test_canonical_bytes_are_those_that_spark_hashes():
    assert to_stored("häuser")[1:] == "häuser".encode()
    assert to_stored(-2)[1:] == (-2).to_bytes(8, "little", signed=True)
    assert to_stored(b"\x00a")[1:] == b"\x00a"


def test_the_shard_of_a_key_is_for_ever():
    # Another value here would send keys to shards that do not have their state.
    assert [shard_of(key, 64) for key in ("user-1", 1, -1, b"user-1", (1, "a"))] == [35, 50, 18, 35, 40]


@given(KEYS.filter(lambda key: key is not None), st.integers(0, 16).map(lambda bits: 2**bits))
def test_the_shard_is_the_hash_modulo_the_shards_signed_or_not(key, n_shards):
    unsigned = xxh64_intdigest(to_stored(key)[1:], 42)
    signed = unsigned - 2**64 if unsigned >= 2**63 else unsigned
    assert shard_of(key, n_shards) == unsigned % n_shards == signed % n_shards
    assert shard_of_stored(to_stored(key), n_shards) == shard_of(key, n_shards)


def test_members_of_string_and_integer_enums_are_their_values():
    assert to_stored(Color.RED) == to_stored("red")
    assert to_stored(Level.HIGH) == to_stored(3)
    assert from_stored(to_stored((Color.RED, Level.HIGH))) == ("red", 3)


def test_zeros_of_both_signs_are_one_key_as_they_are_to_python():
    assert to_stored(-0.0) == to_stored(0.0)
    assert to_stored((-0.0,)) == to_stored((0.0,))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "must not be None"),
        (2**63, "does not fit in 64 bits"),
        (-(2**63) - 1, "does not fit in 64 bits"),
        ((2**64,), "use a str key"),
        (math.nan, "NaN"),
        (("a", math.nan), "NaN"),
        ("\ud800", "not valid Unicode"),
        (("\ud800",), "use a str key"),
        (["a"], "of type list cannot be a key.*; a list as a key is a tuple"),
        (datetime.date(2026, 1, 1), "of type date cannot be a key.*isoformat"),
        (
            (datetime.datetime(2026, 1, 1),),
            "of type datetime cannot be a key.*; a time as a key is text",
        ),
        (decimal.Decimal(1), r"of type Decimal cannot be a key.*; a Decimal as a key is text, str\(…\)"),
        (frozenset({1}), "of type frozenset cannot be a key"),
        ({"a": 1}, "of type dict cannot be a key"),
    ],
)
def test_keys_that_would_not_come_back_equal_are_refused(key, said):
    with pytest.raises(StepError, match=said):
        to_stored(key)


@pytest.mark.parametrize("n_shards", [1, 2, 64, 65536])
def test_powers_of_two_are_numbers_of_shards(n_shards):
    check_n_shards(n_shards)


@pytest.mark.parametrize("n_shards", [0, -1, 3, 48, 65537, 131072])
def test_other_numbers_of_shards_are_refused(n_shards):
    with pytest.raises(ConfigError, match="power of two"):
        check_n_shards(n_shards)
