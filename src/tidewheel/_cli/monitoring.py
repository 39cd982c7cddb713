"""`tidewheel monitoring`: alert rules for Prometheus and a dashboard for Grafana, as files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel.errors import ConfigError


def monitoring(
    folder: Annotated[Path, typer.Argument(help="The folder for the files; created if missing.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    verbose: Verbose = False,
) -> None:
    """Write the Prometheus alert rules and the Grafana dashboard that come with Tidewheel to a folder.

    They use the metrics that `tidewheel run --metrics` serves.

    For example:

        tidewheel monitoring /etc/prometheus
    """
    brought = sorted(files("tidewheel._observe").joinpath("monitoring").iterdir(), key=lambda file: file.name)
    there = [folder / file.name for file in brought if (folder / file.name).exists()]
    if there and not force:
        raise ConfigError(f"{there[0]} exists; replace it with --force, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file in brought:
        (folder / file.name).write_bytes(file.read_bytes())
        echo(str(folder / file.name))
