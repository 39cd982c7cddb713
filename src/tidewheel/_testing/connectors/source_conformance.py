"""The tests that every source must pass."""

from __future__ import annotations

import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidewheel import RunOptions
from tidewheel._connectors.memory.collect import collect
from tidewheel._program.job import Job
from tidewheel._testing.connectors.driving import DrivenSource
from tidewheel._testing.connectors.harness import SourceHarness
from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def payloads(first: int, last: int) -> list[bytes]:
    """Return different payloads."""
    return [b"payload-%06d" % number for number in range(first, last)]


class SourceConformance:
    """Inherit from this class and add a fixture `harness`, new for every test."""

    def test_recorded_offsets_cover_all_existing_records(self, harness: SourceHarness) -> None:
        """Appended records are between the first and the latest offsets, and none are after those."""
        harness.append(payloads(0, 50))
        source = DrivenSource(harness)
        start = source.start()
        end = source.end(start)
        assert Counter(source.read(start, end)) == Counter(payloads(0, 50))
        assert source.end(end) == end

    def test_an_empty_source_has_no_batch(self, harness: SourceHarness) -> None:
        """Offsets do not move while nothing was appended."""
        source = DrivenSource(harness)
        start = source.start()
        assert source.end(start) == start
        assert source.read(start, start) == []

    def test_a_recorded_range_is_read_again_with_the_same_records(self, harness: SourceHarness) -> None:
        """A batch that ran and was not committed is read again, by another process, after more has arrived."""
        harness.append(payloads(0, 50))
        source = DrivenSource(harness)
        start = source.start()
        end = source.end(start)
        first = source.read(start, end)
        harness.append(payloads(50, 80))
        assert source.read(start, end) == first
        assert DrivenSource(harness).read(start, end) == first

    def test_a_restart_continues_after_the_recorded_offsets(self, harness: SourceHarness) -> None:
        """Nothing is left out and nothing comes twice."""
        harness.append(payloads(0, 30))
        source = DrivenSource(harness)
        start = source.start()
        end = source.end(start)
        harness.append(payloads(30, 70))
        again = DrivenSource(harness)
        assert Counter(again.read(end, again.end(end))) == Counter(payloads(30, 70))

    def test_a_batch_keeps_to_its_limit(self, harness: SourceHarness) -> None:
        """However much is there, a batch is small, and all of it comes in the end."""
        harness.append(payloads(0, 50))
        source = DrivenSource(harness, max_records=7)
        sizes, seen = [], Counter[bytes]()
        for _, batch in source.batches(source.start()):
            sizes.append(len(batch))
            seen.update(batch)
        assert seen == Counter(payloads(0, 50))
        assert min(sizes) > 0
        assert max(sizes) <= 7 or not harness.exact_limit

    def test_a_batch_keeps_to_the_limit_of_the_run(self, harness: SourceHarness) -> None:
        """A run that limits batches by duration sets `limit`; a reader that does not know amounts ignores it."""
        harness.append(payloads(0, 50))
        source = DrivenSource(harness)
        start = source.start()
        knows_amounts = source.reader.amount(start, source.end(start)) > 0
        source.reader.limit = 7
        seen, amounts = Counter[bytes](), []
        for end, batch in source.batches(start):
            amounts.append(source.reader.amount(start, end))
            seen.update(batch)
            start = end
        assert seen == Counter(payloads(0, 50))
        if knows_amounts:
            assert sum(amounts) == 50
            assert max(amounts) <= 7 or not harness.exact_limit

    def test_a_bounded_run_ends_with_the_existing_records(self, harness: SourceHarness) -> None:
        """Records appended after the run began are left to the next one."""
        harness.append(payloads(0, 20))
        source = DrivenSource(harness)
        start = source.start()
        source.reader.freeze()
        harness.append(payloads(20, 40))
        ends = list(source.batches(start))
        assert Counter(payload for _, batch in ends for payload in batch) == Counter(payloads(0, 20))

    def test_a_server_that_was_gone_costs_nothing_but_time(self, harness: SourceHarness) -> None:
        """Reading fails with an error of ours, or waits; when the server is back, the same range is read."""
        if not harness.can_stop:
            pytest.skip("the harness cannot stop the server")
        harness.append(payloads(0, 20))
        source = DrivenSource(harness)
        start = source.start()
        end = source.end(start)
        harness.stop_server()
        try:
            with pytest.raises(TidewheelError) as failed:
                source.read(start, end)
        finally:
            harness.start_server()
        assert not _seen(harness, failed.value)
        assert Counter(source.read(start, end)) == Counter(payloads(0, 20))
        harness.append(payloads(20, 30))
        assert Counter(source.read(end, source.end(end))) == Counter(payloads(20, 30))

    def test_secrets_are_not_shown(self, harness: SourceHarness) -> None:
        """Neither the source nor its `repr` and errors contain a password."""
        if not harness.secrets:
            pytest.skip("the harness has no secrets")
        source = harness.source()
        for text in (repr(source), str(source), source.describe(), repr(harness.reader(source))):
            assert not any(secret in text for secret in harness.secrets)

    def test_on_spark_every_record_is_read_once(
        self, harness: SourceHarness, spark: SparkSession, tmp_path: Path
    ) -> None:
        """A job reads the available data, ends, and continues in a later run."""
        into: list[dict[str, Any]] = []
        for first, last in ((0, 40), (40, 60)):
            harness.append(payloads(first, last))
            job = Job("reading", state=(tmp_path / "state").as_uri(), n_shards=4)
            job.source("in", harness.source(max_records=25)).sink("out", collect(into))
            job.run(until="caught-up", options=RunOptions(spark=spark, local=str(tmp_path / "local")))
        # A run in a new sink begins with the output of the newest commit, which may have been seen.
        assert Counter(map(harness.payload, into)).keys() == set(payloads(0, 60))
        assert len(into) <= 60 + 25


def _seen(harness: SourceHarness, error: BaseException) -> list[str]:
    text = "".join(traceback.format_exception(error))
    return [secret for secret in harness.secrets if secret in text]
