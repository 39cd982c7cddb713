"""The commands in README, docs and `--help` exist with their options, and every command and argument is explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typer.main import get_command

from support.internals import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = re.compile(r"(?<!from )\btidewheel ([a-z][^`\n#]*(?:\\\n[^`\n#]*)*)")


def commands(command: click.Command, path: str = "tidewheel") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if hasattr(command, "list_commands"):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), f"{path} {name}")


ALL = dict(commands(get_command(app)))


def wrong(text: str) -> list[str]:
    """Return the commands in a text that are not there, or have other options. Prose is not looked at: no command, no options."""
    found = []
    for written in WRITTEN.findall(text):
        words = written.replace("\\\n", " ").split()
        path = max((name for name in ALL if f"tidewheel {' '.join(words)} ".startswith(f"{name} ")), key=len)
        options = {"--help", *(option for parameter in ALL[path].params for option in parameter.opts)}
        given = [word.rstrip(".,;:)…").partition("=")[0] for word in words if word.startswith("--")]
        if any(option not in options for option in given):
            found.append(written)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_docs_exist(page):
    assert wrong(page.read_text()) == []


def test_every_command_takes_the_state_url_from_the_same_variable():
    options = [(path, each) for path, command in ALL.items() for each in command.params if "--state" in each.opts]
    assert len(options) > 10
    assert [path for path, option in options if option.envvar != "TIDEWHEEL_STATE"] == []


@pytest.mark.parametrize("path", ALL)
def test_help_explains_the_command_and_its_arguments(path):
    command = ALL[path]
    assert command.help
    assert wrong(command.help) == []
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", None)] == []
