"""The code of docs/testing.md passes unchanged."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tidewheel._testing import clock, script

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def on_spark(example: str) -> bool:
    return "(spark)" in example


@pytest.mark.parametrize("number", [n for n, text in enumerate(EXAMPLES) if not on_spark(text)])
def test_an_example_passes(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number}", "exec"), names)
    tests = [function for name, function in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()
    assert list(tmp_path.iterdir()) == []


def test_the_first_test_has_about_ten_lines():
    assert len([line for line in EXAMPLES[0].splitlines() if line.strip()]) <= 12


def test_the_example_on_spark_passes(spark):
    (example,) = filter(on_spark, EXAMPLES)
    before = next(text for text in EXAMPLES if "def totals()" in text)
    names: dict = {}
    exec(compile(before + example, f"{PAGE.name} on Spark", "exec"), names)
    names["test_totals_on_spark"](spark)


@pytest.mark.parametrize("module", [clock, script])
def test_docstrings(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
