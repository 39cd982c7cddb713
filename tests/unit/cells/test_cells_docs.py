"""The examples of docs/cells.md work as described."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tidewheel import cells
from tidewheel._cells import declared, type_description

PAGE = Path(__file__).parents[3] / "docs" / "cells.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number):
    exec(compile(EXAMPLES[number], f"{PAGE.name} example {number}", "exec"), {})


@pytest.mark.parametrize("module", [cells, declared, type_description])
def test_docstrings(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
