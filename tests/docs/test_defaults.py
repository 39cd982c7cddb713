"""The defaults on the pages are those of the signatures and of the command line.

A page states a default as "`name` … (default: VALUE)" or "`name` …: `VALUE` (the default)" within one sentence, or in a
table with the column `default`, whose first column has the name.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import click
import pytest
from typer.main import get_command

from support.internals import app
from support.public_modules import public
from support.public_pages import PAGES
from tidewheel._time.duration import nanoseconds
from tidewheel.errors import TidewheelError

NUMBERS = {"a": "1", "an": "1", "one": "1", "two": "2", "three": "3", "five": "5", "ten": "10"}
_NAME = r"`-{0,2}(?P<name>[a-z_-]+)=?`"
_STATED = (
    re.compile(_NAME + r"[^`.;]*\(default:? (?P<value>`[^`]+`|[^`)]+?)\)"),
    re.compile(_NAME + r"(?:[^`.;]|`[^`]*`)*?(?P<value>`[^`]+`) \(the default\)"),
)


def of_commands(command: click.Command) -> Iterator[click.Parameter]:
    """Yield the parameters of a command and of its subcommands."""
    yield from command.params
    if hasattr(command, "list_commands"):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from of_commands(command.get_command(context, name))


def known_defaults() -> dict[str, list[Any]]:
    """Return the defaults of all public parameters and options by name."""
    found: dict[str, list[Any]] = defaultdict(list)
    for _, member in public():
        try:
            parameters = inspect.signature(member).parameters.values()
        except (TypeError, ValueError):
            continue
        for each in parameters:
            if each.default is not each.empty:
                found[each.name].append(each.default)
    for option in of_commands(get_command(app)):
        found[(option.name or "").replace("-", "_")].append(option.default)
    return found


KNOWN = known_defaults()


def table_rows(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and default of the rows of tables with a column `default`."""
    column = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else None
        if cells is None:
            column = None
        elif column is None:
            column = cells.index("default") if "default" in cells else -1
        elif column > 0 and set(line) > set("|- ") and column < len(cells) and cells[column]:
            named = re.match(r"`-{0,2}([a-z_-]+)(?:=[^`]*)?`", cells[0])
            if named and re.fullmatch(r"`.+`|[\d.]+|off|all|no limit", cells[column]):
                yield named[1], re.sub("^(off|all|no limit)$", "None", cells[column])


def stated_defaults(text: str) -> list[tuple[str, str]]:
    """Return the defaults that a page states, each with the name of the parameter or option."""
    prose = re.sub(r"(?ms)^```.*?^```|^    .*?$", "", text)
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\n|\n(?=\s*[-*|] )|\n(?=\|)", prose)]
    found = [(each["name"], each["value"]) for one in _STATED for part in paragraphs for each in one.finditer(part)]
    return [*found, *table_rows(text)]


def same(default: Any, value: str) -> bool:
    """Tell whether a default is what a page says: a literal, or a number or duration in words."""
    value = re.sub(r"(?<=\d),(?=\d{3})", "", value.strip("`"))
    number, _, unit = value.partition(" ")
    spelt = f"{NUMBERS.get(number, number)} {unit}".strip()
    if isinstance(default, str | timedelta):
        with contextlib.suppress(TidewheelError):
            return nanoseconds(default, "default") == nanoseconds(spelt.strip('"'), "value")
    with contextlib.suppress(ValueError, SyntaxError):
        return bool(default == ast.literal_eval(spelt))
    return str(default) == value


def wrong(text: str) -> list[str]:
    """Return the stated defaults that no signature has."""
    return [
        f"{name}: {value}, not {KNOWN[name.replace('-', '_')]}"
        for name, value in stated_defaults(text)
        if not any(same(default, value) for default in KNOWN.get(name.replace("-", "_"), []))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_defaults_of_the_docs_are_those_of_the_signatures(page):
    assert wrong(page.read_text()) == []


def test_a_wrong_default_is_found():
    text = '`n_shards` (default 128) and `quiet` (default: `"2 s"`); `max_ahead` (default: a\nday).\n\n'
    table = "| option | default |\n|---|---|\n| `--restarts` | 3 |\n| `keep` | 10 |\n"
    assert [each.partition(",")[0] for each in wrong(text + table)] == [
        "n_shards: 128",
        'quiet: `"2 s"`',
        "restarts: 3",
    ]


def test_the_pages_state_defaults():
    assert sum(len(stated_defaults(page.read_text())) for page in PAGES) >= 12
