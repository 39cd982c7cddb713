"""`tidewheel compact`: rewrite the small files of a table into larger ones."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidewheel._cli.echo import echo
from tidewheel._connectors.files.target_folder import HIDDEN
from tidewheel._subjects import added, load
from tidewheel.errors import ConfigError


def compact(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="The URL or folder of a Delta table; or an Iceberg table, such as shop.orders."
        ),
    ],
    catalog: Annotated[
        str | None, typer.Option(metavar="NAME", help="The catalog of an Iceberg table, as .pyiceberg.yaml names it.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A property of the catalog of an Iceberg table, such as uri=http://localhost:8181; several are possible.",
        ),
    ] = None,
    branch: Annotated[str, typer.Option(help="The branch of an Iceberg table.")] = "main",
    target_mb: Annotated[int, typer.Option(min=1, help="The size of the new files.")] = 128,
) -> None:
    """Replace the small files of a Delta or Iceberg table by larger ones, in one commit of the table.

    Jobs and readers can use the table meanwhile. The replaced files stay until the table no longer keeps them.
    """
    if catalog is None and not properties:
        if "://" not in table and os.path.isdir(os.path.join(table, HIDDEN)):
            raise ConfigError(
                f"{table} is a folder of a files sink: its readers list the folder, so published files cannot be replaced "
                "without rows that they find twice or not at all. Use compact= of the files sink, which merges files before "
                "they appear"
            )
        sink = _factory("delta")(table)
    else:
        given = dict(_parted(each) for each in properties or ())
        sink = _factory("iceberg")(
            table, catalog={**given, "name": catalog} if given and catalog else given or catalog, branch=branch
        )
    done = sink.compact(target_mb << 20)
    if not done.before:
        echo("there are no small files to replace")
    else:
        echo(f"replaced {done.before:,} files by {done.after:,}")


def _factory(name: str):  # type: ignore[no-untyped-def]
    if name not in added("sinks"):
        raise ConfigError(f"this Tidewheel has no {name} sink")
    return load("sinks", name)


def _parted(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--property is NAME=VALUE, such as uri=http://localhost:8181, not {text!r}")
    return name, value
