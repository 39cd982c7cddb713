"""Logging of the command line: to stderr, as text or as JSON, without secrets."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any, Literal, get_args

from tidewheel._core.logs import FIELDS
from tidewheel._core.lost_terminal import survive_loss
from tidewheel._core.text import printable
from tidewheel._observe.redaction import without_secrets
from tidewheel.errors import ConfigError

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")

ROOT = "tidewheel"


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, and its run; `error` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["error"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text: the level, the job if known, the message."""

    def format(self, record: logging.LogRecord) -> str:
        job = getattr(record, "job", None)
        where = "" if job is None else f"{job}: "
        text = f"{record.levelname.lower()}: {where}{record.getMessage()}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return printable(without_secrets(text))


class StderrHandler(logging.Handler):
    """Writes to the current stderr; a closed terminal is not an error."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with survive_loss(sys.stderr):
                print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def configure(level: str | None = None, form: str | None = None) -> None:
    """Send the package's logs to stderr from a level on, by default `info` for JSON and `warning` for text."""
    chosen = form or "text"
    if chosen not in get_args(Format):
        raise ConfigError(f"logs are written as {' or '.join(get_args(Format))}, not as {form!r}")
    lowest = level or ("info" if chosen == "json" else "warning")
    if lowest not in LEVELS:
        raise ConfigError(f"a level of logs is one of {', '.join(LEVELS)}, not {level!r}")
    root = logging.getLogger(ROOT)
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter() if chosen == "json" else TextFormatter())
    for old in [each for each in root.handlers if isinstance(each, StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(lowest.upper())
    root.propagate = False


def is_json() -> bool:
    """Return whether stderr has JSON logs."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger(ROOT).handlers)
