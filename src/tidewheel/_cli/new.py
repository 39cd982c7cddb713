"""`tidewheel new`: create a starter project."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def new(
    name: Annotated[
        str, typer.Argument(help="The name of the project, its folder and its job: lowercase letters, digits and '_'.")
    ],
    verbose: Verbose = False,
) -> None:
    """Create a starter project in a new folder: a program, its test, sample data, a configuration, a README and a CI file.

    For example:

        tidewheel new shop

        cd shop && pytest -q && tidewheel run shop.py --until caught-up
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a project: it is imported by its test, so it has small letters, digits and '_', and "
            "begins with a letter"
        )
    folder = Path(name)
    if folder.exists():
        raise ConfigError(f"{folder.absolute()} exists already; choose another name, or remove it")
    for path, text in starter_files(name).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        echo(f"created {file}")
    echo(f"next: cd {name} && pytest -q && tidewheel run {name}.py --until caught-up")


def starter_files(name: str) -> dict[str, str]:
    """Return the files of a starter project by their paths."""
    starter = resources.files("tidewheel._cli") / "starter"
    paths = {
        "program.py.txt": f"{name}.py",
        "test.py.txt": f"test_{name}.py",
        "orders.jsonl.txt": "orders/first.jsonl",
        "readme.md.txt": "README.md",
        "tidewheel.toml.txt": "tidewheel.toml",
        "requirements.txt": "requirements.txt",
        "gitignore.txt": ".gitignore",
        "ci.yml.txt": ".github/workflows/test.yml",
    }
    return {path: (starter / file).read_text().replace("PROJECT", name) for file, path in paths.items()}
