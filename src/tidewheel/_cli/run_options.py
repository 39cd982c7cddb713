"""The options shared by `tidewheel run` and `tidewheel node`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel._cli.duration import duration
from tidewheel._spark.trigger import check_trigger
from tidewheel.errors import ConfigError

Master = Annotated[
    str | None,
    typer.Option(help="Spark's master: local[4], spark://host:7077, …; by default all cores of this machine."),
]
Local = Annotated[
    str | None, typer.Option(metavar="DIR", help="The folder for local copies of the state, on every host.")
]
Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark setting; can be repeated.")]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="[HOST:]PORT", help="Serve /metrics, /health and /ready; by default on 127.0.0.1."),
]
ReadyWithin = Annotated[
    str, typer.Option(callback=duration, metavar="TIME", help="The maximum age of the last commit for /ready.")
]
History = Annotated[
    str,
    typer.Option(metavar="TIME", help="How long to keep figures and errors at the state URL; 'none' records nothing."),
]


def checked_trigger(text: str | None) -> str | None:
    """Return a trigger unchanged; raise a usage error if it is invalid."""
    try:
        check_trigger(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def settings(conf: list[str] | None) -> dict[str, str]:
    """Return Spark settings by name; raise a usage error if one has no value."""
    pairs = [item.partition("=") for item in conf or ()]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} lacks its value; write NAME=VALUE", param_hint="--conf")
    return {name: value for name, _, value in pairs}


def kept_history(text: str) -> str | None:
    """Return how long to keep the history; None for 'none'."""
    return None if text == "none" else text
