"""The options of commands that log and trace: `--log-level`, `--log-format` and `--traces`."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel._observe.logs import LEVELS, configure
from tidewheel.errors import ConfigError

_LEVEL, _FORMAT = "--log-level", "--log-format"


def _checked(level: str | None, form: str | None, option: str) -> None:
    try:
        configure(level, form)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


LogLevel = Annotated[
    str | None,
    typer.Option(
        _LEVEL,
        metavar="LEVEL",
        envvar="TIDEWHEEL_LOG_LEVEL",
        help=f"The minimum log level: {', '.join(LEVELS)}; by default warning, for JSON info.",
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        _FORMAT, metavar="FORMAT", envvar="TIDEWHEEL_LOG_FORMAT", help="The log format on stderr: text or json."
    ),
]


Traces = Annotated[
    bool,
    typer.Option("--traces", help="Send an OpenTelemetry trace of each batch to OTEL_EXPORTER_OTLP_ENDPOINT."),
]


def configure_logs(level: str | None, form: str | None, traces: bool = False) -> None:
    """Configure logs on stderr and traces by the options; raise a usage error for invalid ones."""
    _checked(None, form, _FORMAT)
    _checked(level, form, _LEVEL)
    if traces:
        from tidewheel._observe.tracing import export_traces

        export_traces()
