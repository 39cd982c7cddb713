"""The files that the pages name are there, so that a reader who follows a page arrives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_exists(page):
    named = set(re.findall(r"(?<![\w/])((?:_[a-z]+/)[a-z_/]+\.py)", page.read_text()))
    assert [name for name in sorted(named) if not (ROOT / "src/tidewheel" / name).is_file()] == []
