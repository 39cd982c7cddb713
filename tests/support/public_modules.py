"""The public modules of the package, and what they have to call."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

SUBMODULES = (
    "agg",
    "cells",
    "checkpoints",
    "codecs",
    "connectors",
    "errors",
    "fleet",
    "sinks",
    "sources",
    "tables",
    "testing",
)
MODULES = (
    "tidewheel",
    *(f"tidewheel.{name}" for name in SUBMODULES),
    "tidewheel.cells.aio",
    "tidewheel.testing.connectors",
)


def public() -> Iterator[tuple[str, object]]:
    """Return the public callables by the names under which a program calls them."""
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            member = getattr(module, name)
            if callable(member):
                yield name, member
            if inspect.isclass(member):
                yield from ((name, each) for name, each in inspect.getmembers(member, callable) if name[0] != "_")
