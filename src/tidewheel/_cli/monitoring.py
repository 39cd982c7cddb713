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
    folder: Annotated[Path, typer.Argument(help="Where to put the files; it is made if it is not there.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    verbose: Verbose = False,
) -> None:
    """Write the alert rules for Prometheus and the dashboard for Grafana that come with Tidewheel to a folder.

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
