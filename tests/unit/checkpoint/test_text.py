"""Keys and values as text, for shells and HTTP."""

import datetime as dt
import json
from collections import deque
from decimal import Decimal

import pytest

from tidewheel import Found
from tidewheel._checkpoint.tools.text import shown
from tidewheel._values import row_class


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({1}, [1]),
        (Decimal("1.10"), "1.10"),
        (dt.date(2024, 1, 1), "2024-01-01"),
        (row_class(("a", "b"))(1, "x"), [1, "x"]),
        (deque([1, b"\x00"]), [1, "AA=="]),
        ({(1, "a"): {2}}, {"[1, 'a']": [2]}),
        (Found("op", ("a", 1), True, {(1, 2): deque([3])}, 7), None),
    ],
)
def test_all_states_are_shown_as_json(value, text):
    back = json.loads(shown(value))
    if text is None:
        text = {"step": "op", "key": ["a", 1], "found": True, "value": {"[1, 2]": [3]}, "sequence": 7}
    assert back == text
