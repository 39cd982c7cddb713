"""For the examples of these pages: a step that is added to a stream shows nothing, so that they read as programs do."""

from __future__ import annotations

import sys

import pytest

from tidewheel._program.steps import Steps


@pytest.fixture(autouse=True)
def streams_show_nothing(monkeypatch):
    """Change what doctest shows the value of an expression with."""
    show = sys.__displayhook__
    monkeypatch.setattr(sys, "__displayhook__", lambda value: None if isinstance(value, Steps) else show(value))
