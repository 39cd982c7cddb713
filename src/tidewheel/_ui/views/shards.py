"""The shards of a job: the size of each, and its holder."""

from __future__ import annotations

from typing import Any

from tidewheel._ui.site import Site
from tidewheel._ui.views.jobs import newest_records


def shards(site: Site, name: str) -> dict[str, Any]:
    """Return keys, bytes and holder of every shard, by number; keys and bytes from the newest history that has them."""
    job = site.job(name)
    head = job.head()
    at = max((record.at / 1e9 for record in newest_records(site, name) if record.shards), default=None)
    keys, sizes = [0] * head.n_shards, [0] * head.n_shards
    for by_shard in site.history.sizes(name).values():
        for shard, stored in by_shard.items():
            if 0 <= shard < head.n_shards:
                keys[shard] += stored.keys
                sizes[shard] += stored.bytes
    return {
        "n_shards": head.n_shards,
        "keys": keys,
        "bytes": sizes,
        "holders": _holders(site, name) if job.is_fleet else [],
        "known_at": at,
        "skew": _skew(keys),
    }


def _holders(site: Site, name: str) -> list[str]:
    from tidewheel.fleet._nodes.chains import Chains  # Only a fleet's job needs them.
    from tidewheel.fleet._nodes.handover import custody

    chains = Chains(site.store, name)
    whose = custody(chains.ledgers())
    runs = chains.entries()
    nodes = {shard: run.node for shard, held in whose.items() if (run := runs.get(held.run)) is not None}
    return [nodes.get(shard, "") for shard in range(max(whose, default=-1) + 1)]


def _skew(keys: list[int]) -> float | None:
    """Return the size of the largest shard relative to the mean; None if there is no data."""
    total = sum(keys)
    return max(keys) * len(keys) / total if total else None
