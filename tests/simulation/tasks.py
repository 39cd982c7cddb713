"""The tasks of a simulated batch: they read state from the store, write deltas and stage output, as those of Spark do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from simulation.sinks import FILES, TABLE, stage_files, stage_table
from tidewheel._checkpoint.state_files import opener
from tidewheel._connectors.sink import Staging
from tidewheel._core.keys import shard_of_stored, to_stored
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.delta_files import DeltaFiles
from tidewheel._engine.report import Staged
from tidewheel._engine.run import ChainRun
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.references import ShardParts
from tidewheel._state.shard_contents import shard_get

STEP = "sum"
_CODEC = msgpack_codec(int)


def commit_batch(
    run: ChainRun,
    events: Iterable[tuple[str, int, Any]],
    row: Callable[[str, int, Any], Any],
    number: Callable[[], int],
    position: Any,
    kind: str = "simulated",
) -> None:
    """Add the amounts of events (key, amount, facts) to the totals of their keys, and commit state, position and output.

    `row` makes the output of an event from its key, the new total and its facts; `number` numbers attempts of tasks.
    """
    head, store = run.head, run.store
    spec = run.spec(1, "")
    fetch = opener(store, run.stream)
    totals: dict[tuple[int, bytes], int] = {}
    rows = []
    for name, amount, facts in events:
        key = to_stored(name)
        shard = shard_of_stored(key, run.job.n_shards)
        if (shard, key) not in totals:
            found = shard_get(head.shards.get(shard, ShardParts()), shard, STEP, key, fetch)
            totals[shard, key] = 0 if found is None else _CODEC.decode(found)
        totals[shard, key] += amount
        rows.append(row(name, totals[shard, key], facts))
    files = DeltaFiles(store, head, f"{run.token}.{number()}")
    for shard in sorted({shard for shard, _ in totals}):
        items = sorted((key, _CODEC.encode(total)) for (at, key), total in totals.items() if at == shard)
        files.add(shard, STEP, iter(items))
    outputs = _staged(run, spec.sequence, rows, number())
    reports = [msgspec.structs.replace(files.reports()[0], outputs=outputs, counts={"in": len(rows)})]
    batch = 0 if head.batch is None else head.batch + 1
    progress = SourceProgress(batch, {"in": position}, {"in": kind}, head.seen, head.driver)
    run.commit(spec, reports, "batch", None, progress)


def _staged(run: ChainRun, sequence: int, rows: Sequence[Any], number: int) -> dict[str, Staged]:
    """Stage the rows for both sinks; an attempt that failed has left files under another number."""
    attempt = f"{run.token}-0-{number}"
    staging = Staging(run.folder, run.stream, FILES, sequence, attempt)
    sink: Any = next(node.operator.sink for node in run.plan.nodes if node.name == FILES)  # type: ignore[attr-defined]
    placed = [stage_files(sink, staging, rows[:1], 0)] + ([stage_files(sink, staging, rows[1:], 1)] if rows[1:] else [])
    token = stage_table(Staging(run.folder, run.stream, TABLE, sequence, attempt), rows)
    return {FILES: Staged(len(rows), msgspec.msgpack.encode(placed)), TABLE: Staged(len(rows), token)}
