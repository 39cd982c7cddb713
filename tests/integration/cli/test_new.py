"""`tidewheel new`: a starter project whose tests pass and whose program is valid."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from typer.testing import CliRunner

from tidewheel import RunOptions
from tidewheel._cli import app


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["new", "shop"])
    assert result.exit_code == 0, result.output
    assert "next: cd shop" in result.output
    return tmp_path / "shop"


def test_the_tests_of_a_new_project_pass_and_its_graph_is_valid(made):
    for command in (["pytest", "-q", "-p", "no:cacheprovider"], ["tidewheel", "graph", "shop.py"]):
        ended = subprocess.run([sys.executable, "-m", *command], cwd=made, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("profile", [None, "laptop", "production"])
def test_the_configuration_of_a_new_project_is_valid(made, profile):
    assert RunOptions.load(made / "tidewheel.toml", profile=profile)


def test_a_new_project_has_a_readme_and_a_ci_file(made):
    assert "tidewheel run shop.py" in (made / "README.md").read_text()
    assert yaml.safe_load((made / ".github/workflows/test.yml").read_text())["jobs"]["test"]["steps"]
    assert not any("PROJECT" in path.read_text() for path in made.rglob("*") if path.is_file())


@pytest.mark.parametrize(("name", "reason"), [("Shop-1", "cannot be the name"), ("shop", "exists already")])
def test_a_name_that_cannot_be_used_is_refused(made, name, reason):
    result = CliRunner().invoke(app, ["new", name])
    assert result.exit_code == 1
    assert reason in " ".join(result.output.split())
