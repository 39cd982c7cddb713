"""The pages of the documentation that describe the public API."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[2]
# The page on migrating names what is gone.
PAGES = [
    _ROOT / "README.md",
    *sorted({*(_ROOT / "docs").glob("*.md"), *(_ROOT / "docs/platforms").glob("*.md")} - {_ROOT / "docs/migrating.md"}),
]
