"""The index of the acceptance tests lists every file, and every listed file exists."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "acceptance"
LINKS = set(re.findall(r"\]\(([^)]+\.py)\)", (FOLDER / "README.md").read_text()))


def test_every_acceptance_test_is_in_the_index():
    assert {path.name for path in FOLDER.glob("test_*.py")} <= LINKS


def test_every_file_of_the_index_exists():
    assert [link for link in sorted(LINKS) if not (FOLDER / link).is_file()] == []
