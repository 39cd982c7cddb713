"""The output that a commit still has to publish or withdraw, as pure functions over manifests."""

from __future__ import annotations

from tidewheel._checkpoint.manifest import Span, StagedOutput
from tidewheel._checkpoint.tools.restore import restored
from tidewheel._checkpoint.unpublished import carried, is_void, outputs_of, retracted, settled, staged_for, void_sinks
from tidewheel.checkpoints import CheckpointId, Manifest

OUT = ("out", "files in /out")


def commit(sequence: int, kind: str = "batch", **fields) -> Manifest:
    outputs = (StagedOutput("out", 1, (b"token",)),) if kind == "batch" else ()
    return Manifest(
        CheckpointId("job", sequence), kind=kind, **{"outputs": outputs, "published": sequence - 1, **fields}
    )


def test_a_restore_names_the_sequences_whose_output_is_void():
    done = restored(commit(3), commit(6), "run", keep_output=False)
    assert (done.sequence, done.kind, done.parent) == (7, "restore", 3)
    assert done.retract == Span(3, 7)
    assert retracted(done) == ()
    assert done.outputs == ()


def test_a_restore_that_keeps_output_voids_nothing():
    assert restored(commit(3), commit(6), "run", keep_output=True).retract is None


def test_unpublishable_output_is_carried_under_its_own_sequence():
    claim = commit(4, "claim", **carried(commit(3)))
    for target in (commit(3), claim):
        done = restored(target, claim, "run", keep_output=False)
        assert (done.outputs, outputs_of(done)) == (commit(3).outputs, 3)


def test_after_the_first_batch_of_a_restore_only_void_output_is_recorded():
    done = restored(commit(3), commit(6), "run", keep_output=False)
    claimed = done.replace(kind="claim")
    assert retracted(claimed) == (Span(3, 7),)
    batch = commit(9, **settled(claimed))
    assert batch.retract is None
    assert retracted(batch) == (Span(3, 7),)
    assert [sequence in Span(3, 7) for sequence in (3, 4, 6, 7)] == [False, True, True, False]


def test_a_second_restore_keeps_the_void_output_of_the_first():
    first = restored(commit(3), commit(6), "run", keep_output=False)
    assert restored(first, first, "run", keep_output=False).retract == Span(3, 8)
    assert restored(commit(2), first, "run", keep_output=False).retract == Span(2, 8)
    claimed = first.replace(id=CheckpointId("job", 8), kind="claim")
    assert restored(claimed, claimed, "run", keep_output=False).retract == Span(3, 9)


def test_a_second_restore_keeps_pending_retractions_void():
    """The restore was itself undone before any run, so its retraction never happened."""
    first = restored(commit(3), commit(6), "run", keep_output=False)
    undone = restored(commit(5), first, "run", keep_output=False)
    assert restored(first, undone, "run", keep_output=False).retract == Span(3, 9)


def test_a_restore_to_an_abandoned_checkpoint_makes_its_output_valid_again():
    first = restored(commit(3), commit(6), "run", keep_output=False)
    second = restored(commit(5), first, "run", keep_output=False)
    assert second.retract == Span(5, 8)
    assert retracted(second) == ()


def test_sinks_that_published_after_the_checkpoint_have_void_output():
    newest = commit(6, sinks={OUT: 5, ("late", ""): 3})
    done = restored(commit(3), newest, "run", keep_output=False)
    assert (void_sinks(newest), void_sinks(done)) == ([], [OUT])
    assert void_sinks(restored(commit(3), newest, "run", keep_output=True)) == []


def test_a_restore_before_a_sinks_output_asks_for_another_retraction():
    claimed = restored(commit(3), commit(6, sinks={OUT: 5}), "run", keep_output=False).replace(kind="claim")
    batch = commit(9, **settled(claimed))
    assert batch.sinks == {OUT: 3}
    assert void_sinks(restored(commit(3), batch, "run", keep_output=False)) == []
    assert void_sinks(restored(commit(2), batch, "run", keep_output=False)) == [OUT]


def test_void_output_is_not_forgotten_by_a_second_restore_before_any_run():
    first = restored(commit(3), commit(6, sinks={OUT: 5}), "run", keep_output=False)
    assert void_sinks(restored(commit(2), first, "run", keep_output=False)) == [OUT]


def test_a_commit_records_the_place_of_each_sink_that_has_output():
    batch = commit(7, **settled(commit(6, sinks={OUT: 5}), commit(7).outputs, {"out": "files in /new"}))
    assert batch.sinks == {OUT: 5, ("out", "files in /new"): 7}
    assert staged_for(batch, "out") == "files in /new"
    done = restored(commit(4), batch, "run", keep_output=False)
    assert void_sinks(done) == [("out", "files in /new"), OUT]
    assert is_void(done, "out", "files in /out")
    assert not is_void(restored(commit(5), batch, "run", keep_output=False), "out", "files in /out")
