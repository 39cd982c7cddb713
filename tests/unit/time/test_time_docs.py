"""The examples of docs/time.md, and of the docstrings about time, do what they say."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tidewheel._state import timers
from tidewheel._time import duration, windows

PAGE = Path(__file__).parents[3] / "docs" / "time.md"


def test_page():
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 10
    assert results.failed == 0


@pytest.mark.parametrize("module", [timers, duration, windows])
def test_docstrings(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
