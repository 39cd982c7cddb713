"""A job's cells: value, version, author, and the commit from which on the job uses that version."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._cells.author import Author
from tidewheel._cells.job_place import CONFIGURATION
from tidewheel._checkpoint.tools.text import decoded
from tidewheel._engine.declaration import declaration
from tidewheel._ui.site import Site
from tidewheel._ui.views.jobs import newest_records
from tidewheel.errors import TidewheelError

_ANY_TYPE = ""


def cells(site: Site, name: str) -> list[dict[str, Any]]:
    """Return every cell that the job declares, or that was written for it."""
    job = site.job(name)
    connection = job.connection()
    pinned = job.head().cells
    program = declaration(site.store, name)
    declared = {cell.name: cell for cell in program.cells} if program is not None else {}
    records = newest_records(site, name)
    rows = []
    for cell in sorted({*pinned, *declared, *connection.names(CONFIGURATION)}):
        row: dict[str, Any] = {"name": cell, "declared": cell in declared}
        if cell in declared:
            row |= {"type": declared[cell].type, "default": declared[cell].default}
        if cell in pinned:
            row |= {"seen_version": pinned[cell].version, "seen_value": decoded(pinned[cell].value, "msgpack")}
            first = next((each for each in records if each.cells.get(cell) == pinned[cell].version), None)
            # The first known record may be later than the first commit with this version.
            if first is not None and first is not records[0]:
                row |= {"seen_since": first.at / 1e9, "seen_sequence": first.sequence}
        try:
            opened = connection.reader(cell, Any, namespace=CONFIGURATION, type_name=_ANY_TYPE)
            opened.refresh()
            change = opened.last_change()
            row |= {"version": int(change.version), "value": change.value, "author": _author(change.author)}
            row.setdefault("type", opened.type_name)
        except TidewheelError as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def _author(author: Author | None) -> dict[str, Any] | None:
    return None if author is None else msgspec.structs.asdict(author)
