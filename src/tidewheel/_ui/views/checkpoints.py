"""A job's checkpoints: the list, the content of one, the differences between two, and the check of all files."""

from __future__ import annotations

from typing import Any

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import CHAIN
from tidewheel._checkpoint.tools.changed_keys import changed_keys
from tidewheel._checkpoint.tools.diff import diff as state_diff
from tidewheel._checkpoint.tools.savepoint import At, find, savepoints
from tidewheel._checkpoint.tools.text import decoded
from tidewheel._checkpoint.tools.verify import verify as verify_files
from tidewheel._engine.job_status import table_versions
from tidewheel._storage.chain import Chain
from tidewheel._ui.site import Site
from tidewheel.errors import TidewheelError

LISTED = 200
_SAMPLES = 10


def checkpoints(site: Site, name: str) -> dict[str, Any]:
    """Return the newest kept checkpoints, newest first, and the savepoints. A damaged one is listed with its error."""
    own = site.job(name).checkpoints()
    numbers = Chain(own.folder, CHAIN).numbers()
    rows: list[dict[str, Any]] = []
    for number in reversed(numbers[-LISTED:]):
        try:
            rows.append(_row(own.load(number)))
        except TidewheelError as error:
            rows.append({"sequence": number, "kind": "damaged", "error": str(error)})
    named = []
    try:
        named = [_row(pin.state()) | {"name": pin.name} for pin in savepoints(own)]
    except TidewheelError as error:
        named = [{"name": "?", "kind": "damaged", "error": str(error)}]
    return {"kept": len(numbers), "checkpoints": rows, "savepoints": named}


def checkpoint(site: Site, name: str, at: At) -> dict[str, Any]:
    """Return one checkpoint with the details that people need."""
    found = find(site.job(name).checkpoints(), at)
    return _row(found) | {
        "run": found.run,
        "host": found.host,
        "lineage": found.lineage,
        "n_shards": found.n_shards,
        "epoch": None if found.epoch is None else str(found.epoch),
        "source_offsets": {source: str(offset) for source, offset in found.source_offsets.items()},
        "steps": {
            step: {"kind": info.kind, "codec": info.codec, "version": info.version, "keys": info.keys}
            for step, info in found.operators.items()
        },
        "counts": found.counts,
        "outputs": {output.sink: output.rows for output in found.outputs},
        "published": found.published,
        "cells": {
            cell: {"version": pinned.version, "value": decoded(pinned.value, "msgpack")}
            for cell, pinned in found.cells.items()
        },
        "tables": table_versions(found),
        "metadata": found.metadata,
    }


def changes(site: Site, name: str, before: At, after: At) -> dict[str, Any]:
    """Return the keys of each step that changed between two checkpoints, with samples."""
    own = site.job(name).checkpoints()
    old, new = find(own, before), find(own, after)
    known = new.operators | old.operators
    tables = [{"table": each.table, **changed_keys(each, known)} for each in state_diff(site.store, old, new, _SAMPLES)]
    return {"before": old.sequence, "after": new.sequence, "tables": tables}


def verification(site: Site, name: str, at: int | None = None) -> dict[str, Any]:
    """Check that all files of one or all checkpoints exist and are undamaged. This reads all of them."""
    checked = verify_files(site.store, site.job(name).checkpoints(), at)
    return {
        "checkpoints": checked.checkpoints,
        "files": checked.files,
        "bytes": checked.bytes,
        "problems": [
            {"what": problem.what, "found": problem.found, "checkpoints": list(problem.checkpoints)}
            for problem in checked.problems
        ],
    }


def _row(found: Manifest) -> dict[str, Any]:
    files = found.files()
    return {
        "sequence": found.sequence,
        "kind": found.kind,
        "created": found.id.created_at / 1e9,
        "batch": found.batch,
        "events": found.event_count,
        "parent": found.parent,
        "parallelism": found.parallelism,
        "files": len(files),
        "bytes": sum(file.size for file in files),
    }
