"""The differences of two checkpoints as plain values, for shells and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.tools.diff import TableDiff
from tidewheel._checkpoint.tools.text import decoded
from tidewheel._state.auxiliary_tables import readable_key


def changed_keys(found: TableDiff, operators: Mapping[str, OperatorInfo]) -> dict[str, Any]:
    """Return how many keys of a table changed, and the samples, decoded as their step describes them."""
    step = found.table.partition("/")[0]
    codec, info = operators[step].codec if step in operators else "", operators.get(found.table)
    samples = [
        {
            "key": readable_key(found.table, change.key),
            "before": decoded(change.before, codec, info),
            "after": decoded(change.after, codec, info),
        }
        for change in found.samples
    ]
    return {"added": found.added, "changed": found.changed, "dropped": found.dropped, "samples": samples}
