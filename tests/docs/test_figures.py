"""The figures in the tables of README and the comparison page are those of docs/performance.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.nexmark.native import NATIVE
from benchmarks.nexmark.queries import QUERIES

ROOT = Path(__file__).parents[2]
MEASURED = (ROOT / "docs/performance.md").read_text().split("\n\n")


def figures(text: str) -> set[str]:
    """Return the numbers of at least four digits; smaller ones are also parts of names and are rounded."""
    return set(re.findall(r"\d{1,3}(?:,\d{3})+", text))


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md"])
def test_the_figures_of_a_row_are_in_one_table_of_the_performance_page(page):
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    measured = {row: figures(row.split("|", 2)[2]) for row in rows if figures(row.split("|", 2)[2])}
    assert measured
    assert [row for row, found in measured.items() if not any(found <= figures(table) for table in MEASURED)] == []


def test_the_comparison_counts_the_queries_of_the_benchmark():
    text = (ROOT / "docs/comparison.md").read_text()
    names = {10: "ten", 19: "19"}
    assert f"{names[len(QUERIES)]} Nexmark queries, {names[len(NATIVE)]} of which" in text
