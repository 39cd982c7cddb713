"""A fleet: its nodes, their leases, and the moving shards."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._cells import open_cells
from tidewheel._ui.site import Site


def fleet(site: Site, name: str) -> dict[str, Any]:
    """Return whether the job belongs to a fleet, and the fleet's status.

    Leases and lag are shown if the fleet's cells and inbox are known here; the holders of shards come from the chains.
    """
    if not site.job(name).is_fleet:
        return {"fleet": False}
    if site.cells is None or site.inbox is None:
        return _by_chains(site, name) | {"fleet": True, "whole": False}
    from tidewheel.fleet._inbox import open_inbox  # Only a fleet's job needs them.
    from tidewheel.fleet._nodes.chains import Chains
    from tidewheel.fleet._nodes.status import Observer

    with open_cells(site.cells) as connection, open_inbox(site.inbox) as inbox:
        status = Observer(connection, Chains(site.store, name), inbox).look()
    figures: dict[str, Any] = msgspec.to_builtins(status)
    return figures | {"fleet": True, "whole": True, "lag": status.lag, "moves": status.moves}


def _by_chains(site: Site, name: str) -> dict[str, Any]:
    from tidewheel.fleet._nodes.chains import Chains
    from tidewheel.fleet._nodes.handover import custody

    chains = Chains(site.store, name)
    whose = custody(chains.ledgers())
    runs = chains.entries()
    nodes: dict[str, dict[str, Any]] = {}
    shards = []
    for shard, held in sorted(whose.items()):
        run = runs.get(held.run)
        node = run.node if run else None
        shards.append({"shard": shard, "holder": node, "run": held.run, "moving": held.source is not None})
        if node is not None:
            row = nodes.setdefault(
                node, {"name": node, "run": held.run, "shards": 0, "events": 0, "committed_at": None}
            )
            row["shards"] += 1
    for run_name, head in chains.heads.items():
        info = runs.get(run_name)
        if info is not None and info.node in nodes:
            row = nodes[info.node]
            row["events"] += head.event_count
            row["committed_at"] = max(row["committed_at"] or 0.0, head.id.created_at / 1e9)
    return {"job": name, "nodes": [nodes[key] for key in sorted(nodes)], "shards": shards}
