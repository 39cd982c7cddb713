"""The tests that every sink must pass, depending on its guarantee."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterable

import pytest

from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel._testing.connectors.driving import DrivenSink
from tidewheel._testing.connectors.harness import SinkHarness
from tidewheel.errors import FencedError, TidewheelError


class SinkConformance:
    """Inherit from this class and add a fixture `harness`, new for every test.

    A sink with the guarantee "at least once" may repeat records but must not lose any. Other sinks must write each record
    exactly once.
    """

    def test_published_output_is_visible(self, harness: SinkHarness) -> None:
        """Records arrive with their columns, commit after commit."""
        sink = DrivenSink(harness)
        for sequence in (2, 3):
            sink.publish(sink.stage(sequence, harness.rows([sequence * 10, sequence * 10 + 1])))
        rows = sorted(harness.contents(), key=lambda row: row["id"])
        assert rows == harness.rows([20, 21, 30, 31]).to_pylist()

    def test_prepared_output_is_not_visible_yet(self, harness: SinkHarness) -> None:
        """Until the commit is published, readers see nothing of it."""
        DrivenSink(harness).stage(2, harness.rows(range(5)), harness.rows(range(5, 9)))
        assert harness.contents() == []

    def test_several_tasks_are_published_together(self, harness: SinkHarness) -> None:
        """The rows of all tasks arrive, also of those that had more than one, and of none."""
        sink = DrivenSink(harness)
        sink.publish(sink.stage(2, harness.rows(range(5)), harness.rows([]), harness.rows(range(5, 9))))
        _holds(harness, range(9))

    def test_an_empty_batch_changes_nothing(self, harness: SinkHarness) -> None:
        """A task without rows has no token, and a commit without tokens publishes nothing."""
        sink = DrivenSink(harness)
        sink.publish(sink.stage(2))
        sink.publish(sink.stage(3, harness.rows([])))
        assert harness.contents() == []
        sink.publish(sink.stage(4, harness.rows([1])))
        _holds(harness, [1])

    def test_publishing_twice_duplicates_nothing(self, harness: SinkHarness) -> None:
        """A crash after publishing leaves it to the next start to publish again."""
        sink = DrivenSink(harness)
        publication = sink.stage(2, harness.rows(range(5)), harness.rows(range(5, 9)))
        sink.publish(publication)
        sink.publish(publication)
        _holds(harness, range(9), repeats=2)
        DrivenSink(harness, store=sink.store).publish(publication)
        _holds(harness, range(9), repeats=3)

    def test_a_crash_between_prepare_and_publish_loses_nothing(self, harness: SinkHarness) -> None:
        """Output that was prepared by a process that died, and committed, is published by the next one."""
        died = DrivenSink(harness)
        publication = died.stage(2, harness.rows(range(4)))
        sink = DrivenSink(harness, store=died.store)
        sink.publish(publication)
        sink.publish(sink.stage(4, harness.rows(range(4, 6))))
        _holds(harness, range(6))

    def test_uncommitted_output_is_never_visible(self, harness: SinkHarness) -> None:
        """After a batch ran twice, only the staged output that the commit names is published."""
        sink = DrivenSink(harness)
        sink.stage(2, harness.rows(range(4)))
        sink.publish(sink.stage(2, harness.rows(range(4))))
        sink.publish(sink.stage(3, harness.rows([4])))
        _holds(harness, range(5))

    @pytest.mark.parametrize("hit", [1, 2])
    def test_a_crash_anywhere_in_publishing_is_repaired(self, harness: SinkHarness, hit: int) -> None:
        """After a crash at any fault point of the sink, the next process finishes the publication."""
        sink = DrivenSink(harness)
        expected = [20]
        points = _passed(sink, sink.stage(2, harness.rows(expected))) - set(harness.points_not_shown)
        for sequence, point in enumerate(sorted(points), 3):
            numbers = [sequence * 10, sequence * 10 + 1]
            publication = sink.stage(sequence, *(harness.rows([number]) for number in numbers))
            faults.arm(f"{point}=raise@{hit}")
            try:
                sink.publish(publication)
            except faults.InjectedFault:
                faults.arm("")
                sink = DrivenSink(harness, store=sink.store)
                sink.publish(publication)
            finally:
                faults.arm("")
            expected += numbers
        _holds(harness, expected, repeats=2)

    def test_a_driver_that_was_overtaken_changes_nothing(self, harness: SinkHarness) -> None:
        """A replaced run publishes an older commit again; nothing may be added, or replaced by older records."""
        if harness.sink().guarantee == "at least once":
            pytest.skip("its guarantee is at least once: it may repeat records")
        paused = DrivenSink(harness)
        older = paused.stage(2, harness.rows(range(3)))
        sink = DrivenSink(harness, store=paused.store)
        sink.publish(older)
        for sequence in (4, 5):
            sink.publish(sink.stage(sequence, harness.rows([sequence])))
        before = _sorted(harness)
        paused.publish(older)
        assert _sorted(harness) == before
        sink.publish(sink.stage(6, harness.rows([6])))
        _holds(harness, [0, 1, 2, 4, 5, 6])

    def test_jobs_and_sinks_that_share_a_place_are_distinguished(self, harness: SinkHarness) -> None:
        """They count their commits each for itself."""
        for number, (job, name) in enumerate((("orders", "out"), ("orders", "more"), ("returns", "out"))):
            sink = DrivenSink(harness, job=job, name=name)
            sink.publish(sink.stage(2, harness.rows([number])))
        _holds(harness, range(3))

    def test_markers_of_ended_runs_of_a_fleet_are_deleted(self, harness: SinkHarness) -> None:
        """Markers of ended runs can be deleted: their output stays, is not published again, and other runs continue."""
        if harness.sink().guarantee == "at least once":
            pytest.skip("its guarantee is at least once: it may repeat records")
        runs = [DrivenSink(harness, job=f"orders/{number}") for number in (1, 2, 3)]
        published = [sink.stage(2, harness.rows([number])) for number, sink in enumerate(runs, 1)]
        for sink, publication in zip(runs, published, strict=True):
            sink.publish(publication)
        for _ in range(2):
            runs[2].sink.forget("orders", "out", [1, 2])
        for paused, publication in zip(runs[:2], published[:2], strict=True):
            for sink in (paused, DrivenSink(harness, job=paused.job, store=paused.store)):
                with contextlib.suppress(FencedError):
                    sink.publish(publication)
        _holds(harness, [1, 2, 3])
        runs[2].publish(runs[2].stage(3, harness.rows([4])))
        for number, job in enumerate(("orders/4", "returns/1"), 5):
            sink = DrivenSink(harness, job=job)
            sink.publish(sink.stage(2, harness.rows([number])))
        _holds(harness, range(1, 7))

    def test_a_server_that_was_gone_costs_nothing_but_time(self, harness: SinkHarness) -> None:
        """Publishing fails with an error of ours; when the server is back, it is published, by its guarantee."""
        if not harness.can_stop:
            pytest.skip("the harness cannot stop the server")
        sink = DrivenSink(harness)
        sink.publish(sink.stage(2, harness.rows([1])))
        publication = sink.stage(3, harness.rows([2, 3]))
        harness.stop_server()
        try:
            with pytest.raises(TidewheelError) as failed:
                sink.publish(publication)
        finally:
            harness.start_server()
        text = "".join(traceback.format_exception(failed.value))
        assert not any(secret in text for secret in harness.secrets)
        sink.publish(publication)
        DrivenSink(harness, store=sink.store).publish(publication)
        _holds(harness, [1, 2, 3], repeats=3)

    def test_output_that_a_restore_made_void_is_retracted(self, harness: SinkHarness) -> None:
        """A restored job retracts the output after its checkpoint, also twice, and then continues."""
        if not harness.sink().retracts:
            pytest.skip("it cannot take back")
        sink = DrivenSink(harness)
        for sequence in (2, 3, 4):
            sink.publish(sink.stage(sequence, harness.rows([sequence])))
        for _ in range(2):
            sink.sink.retract(sink.job, sink.name, 2, 5)
            _holds(harness, [2])
        sink.publish(sink.stage(6, harness.rows([6])))
        _holds(harness, [2, 6])

    def test_secrets_are_not_shown(self, harness: SinkHarness) -> None:
        """Neither the sink nor its `repr` and errors contain a password."""
        if not harness.secrets:
            pytest.skip("the harness has no secrets")
        sink = harness.sink()
        for text in (repr(sink), str(sink), sink.describe()):
            assert not any(secret in text for secret in harness.secrets)


def _holds(harness: SinkHarness, numbers: Iterable[int], *, repeats: int = 1) -> None:
    """Check that each record is there exactly once; if the guarantee is at least once, one to `repeats` times."""
    counts = Counter(row["id"] for row in harness.contents())
    expected = set(numbers)
    assert counts.keys() == expected, (
        f"lacking {sorted(expected - counts.keys())}, too many {sorted(counts.keys() - expected)}"
    )
    most = repeats if harness.sink().guarantee == "at least once" else 1
    often = {number: count for number, count in counts.items() if count > most}
    assert not often, f"there more than {most} times: {often}"


def _passed(sink: DrivenSink, publication: Publication) -> set[str]:
    """Publish, and return the fault points that were passed."""
    faults.arm(";".join(f"{point}=raise@0" for point in faults.POINTS))
    try:
        sink.publish(publication)
        return set(faults.hits())
    finally:
        faults.arm("")


def _sorted(harness: SinkHarness) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(sorted((name, repr(value)) for name, value in row.items())) for row in harness.contents())
