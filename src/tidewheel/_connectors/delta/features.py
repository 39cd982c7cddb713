"""The features of a Delta table that the sink does not support, by name.

Tasks write data files themselves, so only the sink can enforce the rules of a table for its writers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_READER, _WRITER = 3, 7
"""The newest versions of the protocol that the sink knows."""

_HARMLESS = frozenset(
    {"appendOnly", "changeDataFeed", "domainMetadata", "invariants", "timestampNtz", "vacuumProtocolCheck"}
)
"""Features that demand nothing of a writer that appends."""

_IN_USE = frozenset({"checkConstraints", "columnMapping", "generatedColumns", "identityColumns"})
"""Features that matter only if the table uses them, which its configuration or its columns show."""


def unsupported(
    versions: tuple[int, int],
    features: Collection[str],
    configuration: Mapping[str, str | None],
    fields: Collection[Mapping[str, Any]],
) -> list[str]:
    """Return the required features of a table that the sink does not support.

    `versions` are those of the protocol for readers and writers, `fields` the columns as the log stores them.

    >>> unsupported((1, 3), (), {"delta.constraints.small": "n < 5"}, ())
    ['the constraint small (n < 5)']
    """
    found = []
    reader, writer = versions
    if reader > _READER or writer > _WRITER:
        found.append(f"the protocol versions {reader} and {writer}")
    found += [f"the feature {name}" for name in sorted(set(features) - _HARMLESS - _IN_USE)]
    if configuration.get("delta.enableDeletionVectors") == "true" and "deletionVectors" not in features:
        found.append("the feature deletionVectors")
    if (mode := configuration.get("delta.columnMapping.mode") or "none") != "none":
        found.append(f"column mapping by {mode}")
    constraints = {name.removeprefix("delta.constraints."): text for name, text in configuration.items()}
    found += [
        f"the constraint {name} ({text})"
        for name, text in constraints.items()
        if f"delta.constraints.{name}" in configuration
    ]
    for field in fields:
        about = field.get("metadata") or {}
        if "delta.generationExpression" in about:
            found.append(f"the generated column {field['name']}")
        if any(name.startswith("delta.identity.") for name in about):
            found.append(f"the identity column {field['name']}")
        if "delta.invariants" in about:
            found.append(f"the invariant of the column {field['name']}")
    return found
