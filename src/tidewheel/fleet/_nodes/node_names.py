"""Remove the cells of unused node names.

A node's name has two cells: its lease, and whether it was asked to leave. A live node renews its lease several times
per ttl, whether it is a member or not. So a lease that was not renewed for an hour is unused, and so are the lease and
the drain cell of that name. Both are removed only at the version that was seen: a node that takes the name, or drains
it, in the meantime has written another version. A node that resumes finds no lease, and takes one as if the name were
new.

This is correct only if the next cell of that name has higher versions: a node that was suspended would mistake an equal
version for its own. etcd's versions continue. In folders and object stores they would restart, so cells stay there, and
the backend refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from tidewheel._cells.connection import Connection
from tidewheel._cells.deadline import seconds_since_boot
from tidewheel._cells.lease import NAMESPACE as LEASES
from tidewheel._cells.lease import Tenure
from tidewheel._cells.map import CellMapWriter
from tidewheel.fleet._nodes.membership import drains

AFTER_S = 3600.0
"""The seconds without renewal after which a name's cells are removed."""


class Standing(msgspec.Struct, frozen=True):
    """The version of a lease, and since when it was seen here."""

    version: int
    since: float


def observed(before: Mapping[str, Standing], versions: Mapping[str, int], now: float) -> dict[str, Standing]:
    """Return since when each lease has its version."""
    fresh = {name: Standing(version, now) for name, version in versions.items()}
    return {
        name: before[name] if name in before and before[name].version == each.version else each
        for name, each in fresh.items()
    }


def unused(standing: Mapping[str, Standing], members: Collection[str], now: float, after: float) -> list[str]:
    """Return the names of non-members whose leases were not renewed for `after` seconds."""
    return sorted(name for name, each in standing.items() if name not in members and each.since + after <= now)


class NodeNames:
    """The names of a fleet's nodes. Not thread-safe."""

    def __init__(self, connection: Connection, job: str, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._connection, self._clock = connection, clock
        self._leases: CellMapWriter[Tenure] = connection.map_writer(f"fleet/{job}", Tenure, namespace=LEASES)
        self._drains = drains(connection, job)
        self._standing: dict[str, Standing] = {}

    def tidy(self, members: Collection[str], after: float = AFTER_S) -> list[str]:
        """Check the names, and remove the cells of unused ones; return these. Call this regularly."""
        if not self._leases.discards:
            return []
        now = self._clock()
        # A drain may have been requested for a name that no node ever had, and that was never renewed.
        names = {*self._names(self._leases), *self._names(self._drains)}
        versions = {name: self._leases.snapshot(name).version for name in names}
        drained = {name: self._drains.snapshot(name).version for name in names}
        self._standing = observed(self._standing, versions, now)
        gone = unused(self._standing, members, now, after)
        for name in gone:
            for held, version in ((self._drains, drained[name]), (self._leases, versions[name])):
                if version:
                    held.discard(name, version)
        return [name for name in gone if name not in {*self._names(self._leases), *self._names(self._drains)}]

    def close(self) -> None:
        """Stop following."""
        self._leases.close()
        self._drains.close()

    def _names(self, held: CellMapWriter[Tenure] | CellMapWriter[float]) -> list[str]:
        """Return all names that have a cell, empty or not, from the backend."""
        held.refresh()
        prefix = f"{held.name}/"
        return [name.removeprefix(prefix) for name in self._connection.names(held.namespace, prefix)]
