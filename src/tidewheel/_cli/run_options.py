"""The options of commands that run a job: `tidewheel run` and `tidewheel node`."""

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
    str | None, typer.Option(metavar="DIR", help="Where tasks keep their local copies of the state, on every host.")
]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's; may be given several times.")
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="[HOST:]PORT", help="Serve /metrics, /health and /ready; on 127.0.0.1 unless told otherwise."),
]
ReadyWithin = Annotated[
    str, typer.Option(callback=duration, metavar="TIME", help="How old the last commit may be for /ready.")
]
History = Annotated[
    str,
    typer.Option(metavar="TIME", help="How long figures and errors stay at the state URL; 'none': nothing is noted."),
]


def checked_trigger(text: str | None) -> str | None:
    """Return a trigger as it was given; a usage error if it is none."""
    try:
        check_trigger(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def settings(conf: list[str] | None) -> dict[str, str]:
    """Return Spark's settings by their names; a usage error if one has no value."""
    pairs = [item.partition("=") for item in conf or ()]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} lacks its value; write NAME=VALUE", param_hint="--conf")
    return {name: value for name, _, value in pairs}


def kept_history(text: str) -> str | None:
    """Return for how long the history is kept; None for 'none'."""
    return None if text == "none" else text
