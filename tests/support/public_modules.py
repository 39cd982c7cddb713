"""The public modules of the package."""

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
