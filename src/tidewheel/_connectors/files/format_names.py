"""The names of formats."""

from __future__ import annotations

from difflib import get_close_matches

from tidewheel._connectors.files.file_splits import FORMATS
from tidewheel.errors import ConfigError


def check_format_name(format: str) -> None:
    """Refuse a format that there is no reader for.

    >>> check_format_name("json")
    """
    if format in FORMATS:
        return
    near = get_close_matches(format.lower(), FORMATS, 1)
    hint = f'; did you mean format="{near[0]}"?' if near else f". There are {', '.join(sorted(FORMATS))}."
    raise ConfigError(
        f"there is no format {format!r}{hint} For a format of Spark's own or of a connector use "
        f'sources.dataframe(lambda spark: spark.readStream.format("{format}").load(path))'
    )
