"""The cells of node names that nobody uses any more, and their removal.

A node's name has two cells: its lease, and whether it was asked to leave. A node that is alive renews its lease several times
in each of its times, whether it is a member or not. So a lease that stood still for an hour is nobody's, and neither it nor the
drain of that name says anything. Both are removed at the version that was seen: whoever takes the name, or drains it,
meanwhile has made another. A node that wakes up finds no lease, and takes one, as if the name were new.

That is right only where the next cell of that name has higher versions: a node that slept would take an equal one for its
own. etcd's versions go on. In folders and object stores they would begin anew, so cells stay there, and the backend refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from tidewheel._cells.connection import Connection
from tidewheel._cells.deadline import seconds_since_boot
from tidewheel._cells.lease import NAMESPACE as LEASES
from tidewheel._cells.lease import Tenure
from tidewheel._cells.map import CellMapWriter
from tidewheel._fleet.membership import drains

AFTER_S = 3600.0
"""For how many seconds a name's lease has stood still when its cells go."""


class Standing(msgspec.Struct, frozen=True):
    """The version of a lease, and since when it was seen here."""

    version: int
    since: float


def observed(before: Mapping[str, Standing], versions: Mapping[str, int], now: float) -> dict[str, Standing]:
    """Return since when each lease stands at its version. Pure."""
    fresh = {name: Standing(version, now) for name, version in versions.items()}
    return {
        name: before[name] if name in before and before[name].version == each.version else each
        for name, each in fresh.items()
    }


def unused(standing: Mapping[str, Standing], members: Collection[str], now: float, after: float) -> list[str]:
    """Return the names whose leases stood still for so many seconds and that are no members. Pure."""
    return sorted(name for name, each in standing.items() if name not in members and each.since + after <= now)


class NodeNames:
    """The names that a fleet's nodes have had. For use by one thread."""

    def __init__(self, connection: Connection, job: str, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._connection, self._clock = connection, clock
        self._leases: CellMapWriter[Tenure] = connection.map_writer(f"fleet/{job}", Tenure, namespace=LEASES)
        self._drains = drains(connection, job)
        self._standing: dict[str, Standing] = {}

    def tidy(self, members: Collection[str], after: float = AFTER_S) -> list[str]:
        """Look at the names, and remove the cells of those that nobody uses; return these. To be called now and then."""
        if not self._leases.discards:
            return []
        now = self._clock()
        # A drain may have been asked for under a name that no node ever had: that name has never been renewed.
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
        """Return all names that have a cell, empty or not, as the backend has them now."""
        held.refresh()
        prefix = f"{held.name}/"
        return [name.removeprefix(prefix) for name in self._connection.names(held.namespace, prefix)]
