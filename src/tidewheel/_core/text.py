"""Values as text in errors."""

from __future__ import annotations

from typing import Any


def shortened(value: Any, limit: int = 500) -> str:
    """Return a value as it looks in Python, cut to a length that a person reads.

    >>> shortened("a" * 20, limit=4)
    "'aaa… (22 characters)"
    """
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
