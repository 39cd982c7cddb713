"""Every public name of `tidewheel` exists and is in docs/api.md; README, docs and examples use no other names."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidewheel
from support.public_modules import MODULES, SUBMODULES
from tidewheel.errors import TidewheelError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CAUGHT_INSIDE = {
    "HandoverRefused",
    "InjectedFault",
    "Left64Bits",
    "MixedAttempts",
    "Overtaken",
    "TooManyDigits",
    "TrimmedError",
    "_NotDecided",
    "_TransactionTimedOut",
}
"""Errors that the package catches itself."""

IMPORT = re.compile(r"^(?:>>> |\.\.\. )?((?:from tidewheel[\w.]* )?import [\w., ]+)", re.M)


def test_every_public_name_exists():
    for name in tidewheel.__all__:
        assert getattr(tidewheel, name).__name__.rpartition(".")[2] == name


def test_a_missing_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'jobs'"):
        tidewheel.jobs  # noqa: B018


@pytest.mark.parametrize(
    ("module", "name", "meant"), [("sinks", "postgresql", "postgres"), ("sources", "kafka_topic", "kafka")]
)
def test_a_misspelt_sink_or_source_is_refused_with_the_nearest_name(module, name, meant):
    with pytest.raises(AttributeError, match=rf"has no '{name}'; did you mean '{meant}'\? There are .*files"):
        getattr(importlib.import_module(f"tidewheel.{module}"), name)


def test_dir_shows_the_public_names_and_modules_alone():
    assert sorted(dir(tidewheel)) == sorted([*tidewheel.__all__, "__version__"])


def test_a_star_gives_the_public_names_and_modules_alone():
    names: dict = {}
    exec("from tidewheel import *", names)
    assert set(names) - {"__builtins__"} == set(tidewheel.__all__)
    assert set(SUBMODULES) <= set(names)
    assert names["sinks"].files


def test_importing_the_package_loads_neither_arrow_nor_spark():
    program = (
        "import sys, tidewheel\n"
        "assert not {'pyspark', 'pyarrow', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "tidewheel.sinks.files, tidewheel.sources.files, tidewheel.cells.open, tidewheel.testing, tidewheel.codecs.json\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_python_m_tidewheel_is_the_command():
    ended = subprocess.run(
        [sys.executable, "-m", "tidewheel", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "Usage: python -m tidewheel" in ended
    assert "checkpoints" in ended


def test_the_list_of_public_names_matches_the_modules():
    sections = re.split(r"^## ", (ROOT / "docs" / "api.md").read_text(), flags=re.M)
    listed = {
        heading.strip("`"): re.findall(r"^- `(\w+)`: \S", names, re.M)
        for heading, _, names in (section.partition("\n") for section in sections)
        if heading.startswith("`tidewheel")
    }
    # The modules among the names have sections of their own.
    offered = {
        name: sorted(each for each in importlib.import_module(name).__all__ if f"{name}.{each}" not in MODULES)
        for name in MODULES
    }
    assert {name: sorted(names) for name, names in listed.items()} == offered, "docs/api.md lists other names"


def test_every_error_that_users_can_catch_is_public():
    for module in pkgutil.walk_packages(tidewheel.__path__, "tidewheel."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = [kind for kind in _below(TidewheelError) if kind.__module__.startswith("tidewheel.")]
    hidden = {kind.__name__ for kind in ours if kind.__module__ not in MODULES}
    assert hidden <= CAUGHT_INSIDE, (
        "export the error by the public module of its subject, with that as its __module__, and list it in docs/api.md; or, "
        "if nobody outside can meet it, add it to CAUGHT_INSIDE"
    )
    for kind in ours:
        if kind.__name__ not in hidden:
            assert getattr(sys.modules[kind.__module__], kind.__name__) is kind


def _below(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_imports_public_names_only(page):
    for statement in IMPORT.findall(page.read_text()):
        _check_imports(statement, page.name)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_uses_public_names_only(example):
    assert "tidewheel._" not in example.read_text()
    _check_imports(example.read_text(), example.name)


def _check_imports(code: str, where: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "tidewheel"]
            assert set(names) <= set(MODULES), f"{where}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "tidewheel":
            assert node.module in MODULES, f"{where}: {ast.unparse(node)}"
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                public = alias.name in module.__all__ or f"{node.module}.{alias.name}" in MODULES
                assert public, f"{where}: {node.module} has no public name {alias.name}"
