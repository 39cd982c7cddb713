"""console: print records."""

from __future__ import annotations

import sys
from typing import Any

from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRecords, published_batches
from tidewheel._core.text import printable
from tidewheel._values.columns import records


def console(limit: int | None = 20) -> Console:
    """Print each commit's records: a table on a terminal, else a line per record; `limit` of them at most, None for all.

    At least once: a restart prints the records of the newest commit again.
    """
    return Console(limit)


class Console(Sink):
    """At least once, because printed records cannot be removed."""

    guarantee = "at least once"

    def __init__(self, limit: int | None) -> None:
        """Take the number of records per commit."""
        self.limit = limit

    def open(self, staging: Staging) -> SinkPartition:
        return StagedRecords(staging)

    def publish(self, publication: Publication) -> None:
        rows = [row for batch in published_batches(publication) for row in records(batch)]
        if not rows:
            return
        shown = rows if self.limit is None else rows[: self.limit]
        title = f"{publication.sink}, sequence {publication.sequence}"
        if sys.stdout.isatty():
            _print_table(title, shown, len(rows))
        else:
            _print_lines(title, shown, len(rows))


def _print(line: str) -> None:
    """Print a line; escape characters that the encoding of the output does not have."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))


def _print_lines(title: str, rows: list[dict[str, Any]], total: int) -> None:
    for row in rows:
        _print(f"{title}: " + " ".join(f"{name}={value!r}" for name, value in row.items()))
    if total > len(rows):
        _print(f"{title}: … {total - len(rows)} more")
    sys.stdout.flush()


def _print_table(title: str, rows: list[dict[str, Any]], total: int) -> None:
    from rich.console import Console as Terminal
    from rich.markup import escape
    from rich.table import Table

    # Without a declared type, the rows of one commit may have different columns.
    names = list(dict.fromkeys(name for row in rows for name in row))
    more = f"… {total - len(rows)} more" if total > len(rows) else None
    table = Table(
        *map(escape, map(printable, names)),
        title=escape(title),
        caption=more,
        title_justify="left",
        caption_justify="left",
    )
    for row in rows:
        table.add_row(*(escape(printable("" if row.get(name) is None else str(row[name]))) for name in names))
    Terminal().print(table)
