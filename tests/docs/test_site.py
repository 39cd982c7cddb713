"""The site builds without a warning, and its generated pages have the public names and the commands."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.public_modules import MODULES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stderr.strip()) == (0, ""), built.stderr
    return folder


def test_every_page_of_the_docs_is_in_the_site(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages -= {Path("README.html"), Path("decisions/README.html")}
    assert {path.relative_to(site) for path in site.rglob("*.html")} >= {*pages, Path("index.html")}


@pytest.mark.parametrize("module", MODULES)
def test_each_public_module_has_a_page_with_its_names(site, module):
    page = (site / f"reference/{module}.html").read_text()
    names = {name for name in importlib.import_module(module).__all__ if f"{module}.{name}" not in MODULES}
    assert {name for name in names if f'id="{module}.{name}"' not in page} == set()


def test_the_reference_has_public_names_and_commands(site):
    names = (site / "reference/tidewheel.html").read_text()
    assert all(f'id="tidewheel.{name}"' in names for name in ("Job", "Stream.event_time", "KeyedStream.stateful_map"))
    commands = (site / "reference/commands.html").read_text()
    assert "tidewheel checkpoints restore" in commands
    assert "--parallelism" in commands


def test_examples_of_docstrings_are_shown_as_code(site):
    text = re.sub(r"<[^>]+>", "", (site / "reference/tidewheel.html").read_text())
    assert "&gt;&gt;&gt; job = Job(" in text
    assert "<blockquote>" not in (site / "reference/tidewheel.html").read_text()


def test_the_site_loads_nothing_from_other_hosts(site):
    loads = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', (site / "index.html").read_text())
    assert loads == []
