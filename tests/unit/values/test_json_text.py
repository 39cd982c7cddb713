"""Values as JSON text, for dead letters."""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
from collections import namedtuple
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._values.json_text import json_text, key_text
from tidewheel._values.row import row_class

Point = namedtuple("Point", "x y")
RAW = b"\xff\x00\xfe"


@dataclasses.dataclass
class Click:
    user: str
    cents: int


class Order(msgspec.Struct):
    user: str
    paid: Decimal


class Colour(enum.Enum):
    RED = "red"


class Plain:
    def __init__(self):
        self.user = "ada"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (row_class(("user", "first name"))("ada", "Ada"), {"user": "ada", "first name": "Ada"}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Click("ada", 3), {"user": "ada", "cents": 3}),
        (Order("ada", Decimal("1.50")), {"user": "ada", "paid": "1.50"}),
        (Plain(), {"user": "ada"}),
        ([b"text \xc3\xa9", RAW], ["text é", base64.b64encode(RAW).decode()]),
        ((1, {2}, None, True), [1, [2], None, True]),
        ({1: "a", (1, 2): "b"}, {"1": "a", "[1, 2]": "b"}),
        (datetime(2026, 11, 15, 12, tzinfo=UTC), "2026-11-15T12:00:00+00:00"),
        (date(2026, 11, 15), "2026-11-15"),
        ([float("nan"), float("inf"), 2**70], ["nan", "inf", 2**70]),
        (Colour.RED, "red"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ([np.int64(3), np.float32(0.5)], [3, 0.5]),
        ("\ud800", "\ud800"),
    ],
)
def test_a_value_is_json(value, expected):
    text = json_text(value)
    text.encode()
    assert json.loads(text) == expected


def test_a_value_that_contains_itself_has_an_end():
    value = []
    value.append(value)
    assert json_text(value).count("[") < 100


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_values_of_json_come_back_equal(value):
    assert json.loads(json_text(value)) == value


@pytest.mark.parametrize(
    ("key", "text"), [("ada", "ada"), (7, "7"), (("a", 1), '["a", 1]'), (b"a", "a"), (True, "true")]
)
def test_a_key_is_text(key, text):
    assert key_text(key) == text
