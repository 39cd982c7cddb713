"""What a sink learns in the driver reaches the tasks of the next batch, and it can refuse output before the commit."""

from __future__ import annotations

import pytest

from tidewheel import Job
from tidewheel.connectors import Publication, Sink, SinkPartition, Staging
from tidewheel.errors import StepError
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


class _Sink(Sink[int]):
    guarantee = "at least once"

    def __init__(self):
        self.seen, self.learnt, self.published = [], None, []

    def known(self):
        return self.learnt

    def before_commit(self, publication: Publication) -> None:
        if publication.tokens == (b"bad",):
            raise StepError(f"sink {publication.sink!r}: never")
        self.learnt = publication.tokens[0]

    def open(self, staging: Staging) -> SinkPartition:
        self.seen.append(staging.known)
        return _Partition()

    def publish(self, publication: Publication) -> None:
        self.published += publication.tokens


class _Partition(SinkPartition):
    def write(self, columns):
        self._token = columns.column(0)[0].as_py().encode()

    def prepare(self):
        return self._token


def test_a_sink_can_refuse_output_before_the_commit_and_tell_tasks_what_it_has_learnt():
    sink = _Sink()
    job = Job("checks", state="memory:sink-checks", n_shards=2)
    job.source("in", iterable([]), type=str).sink("out", sink)
    with MemoryRun(job) as run:
        run.batch({"in": ["first"]})
        committed = run.run.head.sequence
        with pytest.raises(StepError, match="sink 'out': never"):
            run.batch({"in": ["bad"]})
        assert run.run.head.sequence == committed
        run.batch({"in": ["second"]})
    assert (sink.seen, sink.published) == ([None, b"first", b"first"], [b"first", b"second"])
