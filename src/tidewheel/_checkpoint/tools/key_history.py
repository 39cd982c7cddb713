"""The history of one key: its value at each kept checkpoint where it changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import Kind, Manifest
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel._storage import Store
from tidewheel.errors import WrongKeyType


class KeyVersion(msgspec.Struct, frozen=True):
    """The value of a key since a checkpoint."""

    sequence: int
    """The checkpoint's number."""
    at: int
    """When it was made, in ns since 1970."""
    kind: Kind
    """Why it was made: a batch, a restore, …"""
    found: bool
    """Whether the key has state."""
    value: Any
    """The state; None if there is none."""
    difference: Any
    """How the value differs from the one before: a number, or a dict of changed fields; None if neither applies."""


class KeyHistory(msgspec.Struct, frozen=True):
    """The values of a key, oldest first."""

    step: str
    key: Any
    versions: tuple[KeyVersion, ...]

    @property
    def found(self) -> bool:
        """Whether the key ever had state."""
        return bool(self.versions)


def key_history(store: Store, checkpoints: Iterable[Manifest], step: str, key: Any) -> KeyHistory:
    """Return the value of a key at each of these checkpoints, in ascending order, where it changed."""
    return KeyHistory(step, key, tuple(_versions(store, checkpoints, step, key)))


class KeyChange(msgspec.Struct, frozen=True):
    """The state of a key in one step, at two checkpoints; None where it has none."""

    step: str
    before: Any
    after: Any


class KeyChanges(msgspec.Struct, frozen=True):
    """The steps in which the state of a key differs between two checkpoints."""

    key: Any
    steps: tuple[KeyChange, ...]
    found: bool
    """Whether the key has state in any step, changed or not."""


def key_changes(store: Store, before: Manifest, after: Manifest, key: Any) -> KeyChanges:
    """Compare the state of one key at two checkpoints, in all steps whose keys have its type."""
    steps, found = [], False
    for step in sorted(before.operators.keys() | after.operators.keys()):
        try:
            sides = [
                StateReader(store, side).get(step, key) if step in side.operators else None for side in (before, after)
            ]
        except WrongKeyType:
            continue
        found = found or any(side is not None and side.found for side in sides)
        was, now = (None if side is None else side.value for side in sides)
        if was != now:
            steps.append(KeyChange(step, was, now))
    return KeyChanges(key, tuple(steps), found)


def _versions(store: Store, checkpoints: Iterable[Manifest], step: str, key: Any) -> Iterator[KeyVersion]:
    """Yield the versions of a key.

    Checkpoints from before the step's first state are skipped. The files of a shard are read only if they changed.
    """
    stored = to_stored(key)
    before: KeyVersion | None = None
    parts: Any = None
    for manifest in checkpoints:
        if step not in manifest.operators:
            continue
        now = manifest.shards.get(shard_of_stored(stored, manifest.n_shards))
        if before is not None and now == parts:
            continue
        parts = now
        found = StateReader(store, manifest).get(step, key)
        if before is None or (found.found, found.value) != (before.found, before.value):
            changed = None if before is None else difference(before.value, found.value)
            version = KeyVersion(
                manifest.sequence, manifest.id.created_at, manifest.kind, found.found, found.value, changed
            )
            if before is not None or found.found:
                yield version
            before = version


def difference(before: Any, after: Any) -> Any:
    """Return how a value changed, as far as that is shorter than the value.

    >>> difference(5, 8), difference({"n": 1, "user": "ada"}, {"n": 3, "user": "ada"}), difference("a", "b")
    (3, {'n': 2}, None)
    >>> difference({"paid": Decimal("1.50")}, {"paid": Decimal("4.00")})
    {'paid': Decimal('2.50')}
    """
    if isinstance(before, dict) and isinstance(after, dict):
        changed = {name: (before.get(name), after.get(name)) for name in {**before, **after}}
        return {
            name: value if (by := difference(was, value)) is None else by
            for name, (was, value) in changed.items()
            if was != value
        }
    kinds = {type(before), type(after)}
    return after - before if kinds <= {int, float} or kinds <= {int, Decimal} else None
