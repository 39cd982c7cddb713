"""The default of a cell is a value of its declared type, or the program is refused where it declares the cell."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidewheel import Job
from tidewheel.errors import GraphError


@dataclass
class Limits:
    low: int


@pytest.mark.parametrize(
    ("declared", "default"),
    [(float, "high"), (int, 1.5), (dict[str, float], {"EUR": "1"}), (list[str], "a"), (Limits, {"low": "x"})],
)
def test_a_default_of_another_type_is_refused(declared, default):
    with pytest.raises(GraphError, match=r"cell 't': default=.* is not of its declared type, .*: Expected"):
        Job("live").cell("t", declared, default=default)


@pytest.mark.parametrize(
    ("declared", "default", "seen"),
    [
        (float, 1, 1.0),
        (float | None, None, None),
        (dict[int, str], {1: "a"}, {1: "a"}),
        (Limits, Limits(1), Limits(1)),
        (Limits, {"low": 1}, Limits(1)),
    ],
)
def test_a_default_is_as_a_value_that_is_read(declared, default, seen):
    assert Job("live").cell("t", declared, default=default).default == seen


def test_the_value_outside_of_a_job_says_where_it_can_be_read():
    with pytest.raises(RuntimeError, match=r"StoredJob\(JOB, state=…\)\.cell\('t'\)"):
        _ = Job("live").cell("t", float, default=1.0).value
