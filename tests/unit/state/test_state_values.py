"""State is read back equal and with the same types throughout, or it is refused when it is written."""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel import Row
from tidewheel._state.codec import codec_named, decode_all, encode_all
from tidewheel._state.stored_types import same
from tidewheel._values import row_class
from tidewheel.codecs import msgpack_codec
from tidewheel.errors import CorruptError, StepError


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    ADA = "ada"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Order:
    user: str
    cents: int
    tags: Any = None


class Visit(msgspec.Struct, rename="camel"):
    first_page: str
    seen: set[int] = msgspec.field(default_factory=set)
    extra: Any = None


zones = st.none() | st.sampled_from(
    [dt.UTC, ZoneInfo("UTC"), ZoneInfo("America/New_York"), dt.timezone(dt.timedelta(0, -3600))]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.binary(max_size=4).map(bytearray)
    | st.sampled_from(
        [Color.RED, Level.LOW, Name.ADA, Point(1, 2), Order("ada", 1), Visit("home"), object(), 1j, range(3)]
    )
)
hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.dates()
    | st.just(Name.ADA),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=3)
    return (
        items
        | items.map(tuple)
        | items.map(deque)
        | st.sets(hashable, max_size=3)
        | st.frozensets(hashable, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(hashable, inner, max_size=2).map(lambda held: defaultdict(list, held))
        | st.lists(hashable, max_size=3).map(Counter)
        | items.map(lambda values: row_class(tuple(f"c{at}" for at in range(len(values))))(*values))
    )


anything = st.recursive(leaves, nested, max_leaves=8)


def alike(value: Any, back: Any) -> bool:
    """Whether two values are equal and of the same types throughout, by a way of its own."""
    if type(value) is not type(back):
        return False
    if isinstance(value, Row):
        return value._columns == back._columns and alike(tuple(value), tuple(back))
    if isinstance(value, dict):
        return alike(list(value.items()), list(back.items()))
    if isinstance(value, deque):
        return value.maxlen == back.maxlen and alike(list(value), list(back))
    if isinstance(value, set | frozenset):
        return value == back and all(any(alike(each, other) for other in back) for each in value)
    if isinstance(value, list | tuple):
        return len(value) == len(back) and all(map(alike, value, back))
    if isinstance(value, dt.datetime | dt.time):
        return value == back and value.tzinfo == back.tzinfo and value.isoformat() == back.isoformat()
    if isinstance(value, float | Decimal):
        return repr(value) == repr(back)
    return bool(value == back)


@given(anything)
def test_any_value_comes_back_as_it_was_or_is_refused(value: Any) -> None:
    codec = msgpack_codec()
    try:
        data = codec.encode(value)
    except StepError:
        with pytest.raises(StepError):
            encode_all(codec, [1, value])
        return
    assert alike(value, codec.decode(data))
    assert alike([1, value], decode_all(codec, encode_all(codec, [1, value])))
    assert alike(value, codec_named("msgpack").decode(data))


DECLARED = [
    int, float, str, bool, bytes, Decimal, UUID, dt.datetime, dt.date, dt.timedelta, dict, list, tuple, set,
    dict[str, int], dict[str, Any], dict[Any, int], list[float], list[Any], tuple[int, Any], tuple[int, ...], set[str], set[Any],
    dict[int, tuple[int, Any]], int | None, int | str, Order, Visit, Point, Color, Level, list[Order], dict[str, Visit],
    Annotated[int, msgspec.Meta(ge=0)],
]  # fmt: skip


@given(st.sampled_from(DECLARED), anything)
def test_any_value_fits_the_declared_type_when_it_is_read_or_is_refused(declared: Any, value: Any) -> None:
    codec = msgpack_codec(declared)
    try:
        data = codec.encode(value)
    except StepError:
        return
    assert same(value, codec.decode(data))
    (raw,) = encode_all(codec, [value])
    assert raw is None or same(value, codec.decode(raw))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 3),
        (float, 3),
        (float, math.nan),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=5)),
        (dt.datetime, dt.datetime(2024, 1, 1)),
        (dt.datetime, dt.datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
        (dict, {"seen": {1, 2}, "last": (1, 2)}),
        (dict, {(1, 2): 3}),
        (dict[int, tuple[int, Any]], {5: (1, (2, 3))}),
        (set[Any], {1, (2, 3)}),
        (tuple, (1, {2})),
        (Order, Order("ada", 1)),
        (Order, Order("ada", 1, tags=("a", {"b"}))),
        (Visit, Visit("home", {1}, (1, 2))),
        (list[Order], [Order("ada", 1, [dt.date(2024, 1, 1)])]),
        (Point, Point(1, 2)),
        (Color, Color.RED),
        (Order | None, Order("ada", 1)),
    ],
)
def test_a_declared_value_comes_back(declared: Any, value: Any) -> None:
    codec = msgpack_codec(declared)
    assert same(value, codec.decode(codec.encode(value)))
    assert same([value, value], decode_all(codec, encode_all(codec, [value, value])))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 1.5),
        (int, True),
        (str, b"a"),
        (dict[str, int], {"a": "b"}),
        (dict, defaultdict(int)),
        (set[int], [1]),
        (tuple[int, int], (1, 2, 3)),
        (tuple[int, ...], [1]),
        (Decimal, "1.5"),
        (dt.date, "2024-01-01"),
        (Order, {"user": "ada", "cents": 1}),
        (Order, Order("ada", 1.5)),
        (Order, Order("ada", 1, tags=Color.RED)),
        (list[Order], [Order("ada", None)]),
        (Annotated[int, msgspec.Meta(ge=0)], -1),
    ],
)
def test_a_value_of_another_type_than_declared_is_refused_at_writing(declared: Any, value: Any) -> None:
    codec = msgpack_codec(declared)
    with pytest.raises(StepError, match="cannot be stored as msgpack of the declared type"):
        codec.encode(value)
    with pytest.raises(StepError, match="cannot be stored as msgpack of the declared type"):
        encode_all(codec, [None, value])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Order("ada", 1), "an Order needs a declared type"),
        ([Visit("home")], "a Visit needs a declared type"),
        ({"at": Point(1, 2)}, "a Point needs a declared type"),
        (Color.RED, "enum Color needs a declared type"),
        ({Name.ADA: 1}, "enum Name needs a declared type"),
        (defaultdict(int), "a defaultdict would come back as a dict"),
        (np.float64(1.5), "a float64 would come back as a float"),
        (memoryview(b"a"), "a memoryview has no form in msgpack"),
        (dt.datetime(2024, 1, 1, tzinfo=type("Zone", (dt.tzinfo,), {"utcoffset": lambda *_: None})()), "the time zone"),
    ],
)
def test_a_value_that_cannot_be_read_back_is_refused_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(StepError, match=reason):
        msgpack_codec().encode(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append((value,))
    with pytest.raises(StepError, match="cannot be stored as msgpack"):
        msgpack_codec().encode(value)


def test_a_record_that_computes_fields_is_checked_by_construction() -> None:
    @dataclass
    class Positive:
        number: int
        doubled: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("negative")

    codec = msgpack_codec(Positive)
    assert codec.decode(codec.encode(Positive(1))) == Positive(1)
    wrong = Positive(1)
    wrong.number = -1
    with pytest.raises(StepError, match="negative"):
        codec.encode(wrong)


def test_sets_are_stored_alike_in_every_process() -> None:
    numbers, turned = {1, 9, 17, 25}, {25, 17, 9, 1}
    assert msgpack_codec().encode(numbers) == msgpack_codec().encode(turned)


@pytest.mark.parametrize("code", [0, 99, -5])
def test_an_extension_type_that_is_not_known_is_refused(code: int) -> None:
    with pytest.raises(CorruptError, match=f"extension type {code} is not known"):
        msgpack_codec().decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(code, b"\x01")))


@given(st.integers(1, 15), st.binary(max_size=20))
def test_any_bytes_of_an_extension_type_decode_or_are_refused(code: int, data: bytes) -> None:
    with suppress(CorruptError):
        msgpack_codec().decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data)))


def test_state_of_before_the_tags_is_read() -> None:
    stored = msgspec.msgpack.encode({"pair": (1, 2), "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)})
    assert msgpack_codec().decode(stored) == {"pair": [1, 2], "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}
