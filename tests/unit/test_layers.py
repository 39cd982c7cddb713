"""No module imports from a layer above its own, and Spark stays where it belongs."""

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
    ["errors", "faults", "keys", "hashing", "values", "pickling"],
    ["storage", "clients"],
    ["chain"],
    ["cells"],
    ["state"],
    ["checkpoint"],
    ["cluster"],
    ["codecs"],
    ["operators", "sinks", "sources", "logic", "graph", "live", "time"],
    ["runtime"],
    ["spark"],
    ["testing", "job", "stream", "stored"],
    ["cli"],
]
"""From the bottom up; what stands in one line may import each other."""

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

WITHOUT_SPARK = {name for names in LAYERS[: RANK["spark"]] for name in names} - {"sinks", "sources"}
"""What never imports pyspark; sources and sinks do when they are used, not when they are imported."""


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
    """Yield every module that is imported when the code runs, and whether that is inside of a function."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((f"{node.module}.{alias.name}", inside) for alias in node.names)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text()), False)


def layer(name: str) -> str | None:
    """Return the part of the package that a dotted name is in, None if it is another package's."""
    parts = name.split(".")
    return parts[1] if parts[0] == "tidewheel" and len(parts) > 1 and parts[1] in {*RANK} else None


def test_every_module_has_a_layer():
    assert {name.split(".")[0] for name in MODULES} <= set(RANK)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_module_imports_from_above(module):
    own = RANK[module.split(".")[0]]
    above = {name for name, _ in imports(MODULES[module]) if (found := layer(name)) is not None and RANK[found] > own}
    assert above == set()


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.split(".")[0] in WITHOUT_SPARK))
def test_below_spark_nothing_imports_pyspark(module):
    assert {name for name, _ in imports(MODULES[module]) if name.split(".")[0] in ("pyspark", "py4j")} == set()


def test_a_program_and_its_tests_are_imported_without_spark():
    used = "tidewheel, tidewheel.testing, tidewheel.sinks, tidewheel.sources, tidewheel.cells, tidewheel.runtime.task"
    code = f"import sys, {used}; print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
