"""A5: the snapshot of every stateful step at a commit holds exactly the state after the messages of that commit."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.internals import states
from tidewheel import sum_
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

batches = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), max_size=8), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=batches, tasks=st.lists(st.integers(1, 4), min_size=6, max_size=6))
def test_a5_every_commit_holds_the_state_after_its_messages(memory_runner, batches, tasks):
    job = memory_runner.job(n_shards=4, keep=100)
    keyed = job.source("in", iterable([]), type=dict).key_by("by", "key")
    # The state is dropped whenever the sum is 0.
    keyed.stateful_map("sum", lambda k, r, s: (s + r["n"], (s + r["n"]) or None), default=0).sink("one", collect())
    keyed.aggregate("total", total=sum_("n")).sink("two", collect())
    sums: dict[int, int] = {}
    totals: dict[int, int] = {}
    expected = {}
    with MemoryRun(job) as run:
        for batch, run.parallelism in zip(batches, tasks, strict=False):
            run.batch({"in": [{"key": key, "n": n} for key, n in batch]})
            for key, n in batch:
                sums[key] = sums.get(key, 0) + n
                totals[key] = totals.get(key, 0) + n
            sums = {key: n for key, n in sums.items() if n}
            expected[run.run.head.sequence] = (dict(sums), dict(totals))
        for manifest in run.run.checkpoints.list():
            if manifest.sequence in expected:
                held = states(run.run.store, manifest)
                decoded = {op: {k: msgspec.msgpack.decode(v) for k, v in keys.items()} for op, keys in held.items()}
                sums_then, totals_then = expected[manifest.sequence]
                assert decoded.get("sum", {}) == sums_then
                assert {key: value[1] for key, value in decoded.get("total", {}).items()} == totals_then
