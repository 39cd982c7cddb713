"""The options of `files()`, their meaning, and the options of Spark that are refused."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel._connectors.files.choose import Limits
from tidewheel._connectors.files.csv_fields import CsvForm
from tidewheel._connectors.files.listing import Pattern
from tidewheel._connectors.files.text_values import TextForm, TimePattern
from tidewheel._time.duration import nanoseconds
from tidewheel.errors import ConfigError, GraphError

_LISTING = {
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "maxFileAge",
    "latestFirst",
    "pathGlobFilter",
    "recursiveFileLookup",
    "fileNameOnly",
}
_BY_FORMAT: Mapping[str, frozenset[str]] = {
    "csv": frozenset(
        {
            "header",
            "sep",
            "delimiter",
            "quote",
            "escape",
            "nullValue",
            "multiLine",
            "timestampFormat",
            "dateFormat",
            "encoding",
        }
    ),
    "json": frozenset({"multiLine", "timestampFormat", "dateFormat", "encoding"}),
    "text": frozenset({"wholetext", "encoding"}),
}
_ALL = sorted(_LISTING.union(*_BY_FORMAT.values()))
PARAMETERS = (
    "format",
    "schema",
    "max_files_per_trigger",
    "max_bytes_per_trigger",
    "glob",
    "recursive",
    "max_age",
    "newest_first",
    "settle",
    "order",
)
_REMOVED = {
    "reader": "Tidewheel's own readers read all files",
    "cleansource": "Spark would remove files before anybody knows that their batch is committed. Remove files yourself, those "
    "that are older than the oldest checkpoint kept",
    "mode": "a line that is not a record stops the job, or goes to job.dead_letter(name, sink)",
    "columnnameofcorruptrecord": "a line that is not a record stops the job, or goes to job.dead_letter(name, sink)",
    "ignoremissingfiles": "a file that is gone before it was read stops the job",
    "ignorecorruptfiles": "a file that cannot be read stops the job",
    "enforceschema": "with header=True, columns are found by their names",
    "inferschema": "give schema='user string, amount long'",
    "mergeschema": "give schema='user string, amount long': a column that a file lacks is null",
}


@dataclass(frozen=True)
class FileOptions:
    """The settings of a program for the files of a source."""

    limits: Limits
    pattern: Pattern
    by_name_only: bool
    given: Mapping[str, Any]
    """The options of the format, by their names in small letters."""

    def check_format(self, format: str) -> None:
        """Refuse options that files of this format do not have."""
        known = {name.lower() for name in _BY_FORMAT.get(format, ())}
        for name in self.given:
            if name not in known:
                raise ConfigError(f"{format} files have no option {name!r}; {_with_spark()}")

    @property
    def csv(self) -> CsvForm:
        """How CSV files are written."""
        given = self.given
        return CsvForm(
            header=_flag("header", given["header"]) if "header" in given else None,
            separator=_sign("sep", given.get("sep", given.get("delimiter", ",")), empty=False),
            quote=_sign("quote", given.get("quote", '"')),
            escape=_sign("escape", given.get("escape", "")),
            null=str(given.get("nullvalue", "")),
            multi_line=self.multi_line,
        )

    @property
    def text(self) -> TextForm:
        """How times and days are written."""
        return TextForm(self._pattern("timestampFormat"), self._pattern("dateFormat"))

    def _pattern(self, name: str) -> TimePattern | None:
        if name.lower() not in self.given:
            return None
        text = str(self.given[name.lower()])
        pattern = TimePattern.of(text)
        if pattern is None:
            raise ConfigError(
                f"{name}={text!r} is not supported: write years, months, days and times as yyyy, MM, dd, HH, mm, ss, SSS and "
                "XXX, each once; or read text and parse it in the program"
            )
        return pattern

    @property
    def multi_line(self) -> bool:
        """Whether a record may have several lines."""
        return _flag("multiLine", self.given.get("multiline", False))

    @property
    def whole_text(self) -> bool:
        """Whether a text file is one record."""
        return _flag("wholetext", self.given.get("wholetext", False))


def file_options(limits: Limits, pattern: Pattern, options: Mapping[str, Any]) -> FileOptions:
    """Combine parameters and options, or raise a `ConfigError`."""
    given: dict[str, Any] = {}
    by_name_only = False
    for name, value in options.items():
        match _known(name):
            case "maxFilesPerTrigger":
                limits = limits._replace(max_files=_count(name, value))
            case "maxBytesPerTrigger":
                limits = limits._replace(max_bytes=_count(name, value))
            case "maxFileAge":
                limits = limits._replace(max_age_ms=milliseconds(value, name))
            case "latestFirst":
                limits = limits._replace(newest_first=_flag(name, value))
            case "pathGlobFilter":
                pattern = pattern._replace(glob=str(value))
            case "recursiveFileLookup":
                pattern = pattern._replace(recursive=_flag(name, value))
            case "fileNameOnly":
                by_name_only = _flag(name, value)
            case "encoding":
                if str(value).lower().replace("_", "-") not in ("utf-8", "utf8"):
                    raise ConfigError(f"files are read as UTF-8, not as {value}; {_with_spark()}")
            case known:
                given[known.lower()] = value
    for name, number in (("max_files_per_trigger", limits.max_files), ("max_bytes_per_trigger", limits.max_bytes)):
        if number is not None and number < 1:
            raise ConfigError(f"{name} is at least 1, not {number}")
    if limits.order not in ("time", "name"):
        raise ConfigError(f'order is "time" or "name", not {limits.order!r}')
    if limits.order == "name" and limits.newest_first:
        raise ConfigError('newest_first=True is for order="time"; names that grow are read from the first to the last')
    found = FileOptions(limits, pattern, by_name_only, given)
    # Values that cannot be are refused where they are given.
    _ = found.csv, found.text, found.multi_line, found.whole_text
    return found


def _known(name: str) -> str:
    """Return an option in our spelling; refuse unknown options."""
    spelt = next((known for known in _ALL if known.lower() == name.lower()), None)
    if spelt is not None:
        return spelt
    if name.lower() in _REMOVED:
        raise ConfigError(f"files() has no option {name!r}: {_REMOVED[name.lower()]}; {_with_spark()}")
    meant = difflib.get_close_matches(name, (*PARAMETERS, *_ALL), 1, cutoff=0.6)
    hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join((*PARAMETERS, *_ALL))};"
    raise ConfigError(f"files() has no option {name!r}: {hint} {_with_spark()}")


def _with_spark() -> str:
    return (
        "for an option of Spark's own reader, use Spark's reader: "
        "sources.dataframe(lambda spark: spark.readStream.format(…).option(…).schema(…).load(path))"
    )


def _flag(name: str, value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ConfigError(f"{name} is True or False, not {value!r}")
    return str(value).lower() == "true"


def _count(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is a number, not {value!r}") from None


def _sign(name: str, value: Any, *, empty: bool = True) -> str:
    text = "" if value is None else str(value)
    if (len(text) == 1 and text.isascii() and text not in "\n\r\0") or (not text and empty):
        return text
    raise ConfigError(f"{name} is one ASCII character, not {value!r}; {_with_spark()}")


def milliseconds(duration: Any, what: str) -> int:
    """Return a duration in ms, or raise a `ConfigError`; a bare number of Spark's is one of ms."""
    if isinstance(duration, str) and duration.strip().isdigit():
        return int(duration)
    try:
        return nanoseconds(duration, what) // 1_000_000
    except GraphError as error:
        raise ConfigError(str(error)) from error
