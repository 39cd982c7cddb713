"""The names of formats: those that are known, and what a misspelt one was meant to be."""

from __future__ import annotations

from difflib import get_close_matches

from tidewheel._connectors.files.extensions import FORMATS, OTHER_FORMATS
from tidewheel.errors import ConfigError

_KNOWN = sorted(FORMATS | OTHER_FORMATS)


def check_format_name(format: str) -> None:
    """Refuse a misspelt format. Any other name may be a data source of somebody else's, which only Spark can tell.

    >>> check_format_name("json"), check_format_name("delta"), check_format_name("org.example.Jsn")
    (None, None, None)
    """
    if format.lower() in _KNOWN or "." in format:
        return
    near = get_close_matches(format.lower(), _KNOWN, 1)
    if near:
        raise ConfigError(
            f'there is no format {format!r}; did you mean format="{near[0]}"? A data source of another maker with such a '
            "name is given by its class, with dots"
        )


def no_reader(format: str) -> str:
    """Return what to do about a format that Spark does not find."""
    return (
        f"Spark has no reader for the format {format!r}. There are {', '.join(_KNOWN)}; that of a connector needs its "
        "package, --conf spark.jars.packages=…"
    )
