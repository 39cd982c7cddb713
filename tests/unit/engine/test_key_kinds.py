"""Which types the keys of operators have, as a commit says it."""

from __future__ import annotations

from tidewheel import Job
from tidewheel._engine.key_kinds import kinds_of_state
from tidewheel.sinks import discard
from tidewheel.sources import iterable


def test_branches_that_part_and_meet_again_many_times_are_walked_once():
    job = Job("diamonds", state="memory:diamonds", n_shards=4)
    stream = job.source("in", iterable([{"user": "a"}])).key_by("by", "user")
    for number in range(40):
        left, right = (stream.map(f"{side}-{number}", lambda value: value) for side in ("left", "right"))
        stream = left.union(f"both-{number}", right)
    stream.stateful_map("count", lambda key, _, n: (n + 1, n + 1), default=0).sink("out", discard())
    assert kinds_of_state(job.plan(), {"by": "str"}) == {"count": "str"}
