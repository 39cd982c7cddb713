"""No module imports from a layer above its own, and only the listed modules import Spark."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidewheel

ROOT = Path(tidewheel.__file__).parent

LAYERS = [
    ["errors", "_subjects"],
    ["_core"],
    ["_values", "_time", "_storage"],
    ["_cells", "_state"],
    ["_checkpoint", "_codecs"],
    ["_connectors", "_observe"],
    ["_operators"],
    ["_engine"],
    ["fleet._nodes"],
    ["_spark"],
    ["_replay", "_imports"],
    ["_program", "_doctor", "fleet._spark_engine"],
    ["_testing", "_ui"],
    ["_cli"],
    [
        "__main__",
        "agg",
        "cells",
        "checkpoints",
        "codecs",
        "connectors",
        "fleet",
        "sinks",
        "sources",
        "tables",
        "testing",
    ],
]
"""From the bottom up. A package imports from the lines below its own, never from its neighbours.

The last line is what users import. A part of a package may have a line of its own."""

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

PARTS = {"_ui.cli": "_cli", "fleet._cli": "_cli", "fleet._inbox": "_connectors"}
"""Parts of optional subjects that count as a part of another package."""

SPARK = {"_spark", "_imports", "_connectors", "_testing", "_program", "fleet._spark_engine"}
"""What may import pyspark, and even these when they are used, not when they are imported."""


def modules() -> dict[str, Path]:
    """Return every module below the package by its dotted name, without the package's own."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield every module that is imported, also for type checkers only, and whether that is inside of a function."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((f"{node.module}.{alias.name}", inside) for alias in node.names)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text()), False)


def package(module: str) -> str:
    """Return the package with a layer of its own that a module, named from below `tidewheel`, is in."""
    parts = module.split(".")
    part = ".".join(parts[:2])
    return PARTS.get(part, part if part in RANK else parts[0])


def layer(name: str) -> str | None:
    """Return the package that a dotted name is in, None if it is another package's."""
    own, _, rest = name.partition(".")
    return package(rest) if own == "tidewheel" and package(rest) in RANK else None


def test_every_module_has_a_layer():
    assert set(map(package, MODULES)) <= set(RANK)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_from_its_own_package_and_those_below(module):
    own = package(module)
    wrong = {
        name for name, _ in imports(MODULES[module]) if (of := layer(name)) not in (None, own) and RANK[of] >= RANK[own]
    }
    assert wrong == set()


@pytest.mark.parametrize("module", sorted(name for name in MODULES if package(name) not in SPARK))
def test_only_connectors_and_what_drives_spark_import_pyspark(module):
    assert {name for name, _ in imports(MODULES[module]) if name.split(".")[0] in ("pyspark", "py4j")} == set()


def test_a_program_and_its_tests_are_imported_without_spark():
    used = "tidewheel, tidewheel.testing, tidewheel.sinks, tidewheel.sources, tidewheel.cells, tidewheel._engine.task"
    code = f"import sys, {used}; print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
