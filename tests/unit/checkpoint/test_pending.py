"""What a commit owes the outside, as pure functions over manifests."""

from __future__ import annotations

from tidewheel._checkpoint.manifest import CheckpointId, Manifest, StagedOutput
from tidewheel._checkpoint.tools.restore import restored
from tidewheel._checkpoint.unpublished import Span, outputs_of, retracted, settled, to_retract


def commit(sequence: int, kind: str = "batch", **fields) -> Manifest:
    outputs = (StagedOutput("out", 1, (b"token",)),) if kind == "batch" else ()
    return Manifest(CheckpointId("job", sequence), kind=kind, **{"outputs": outputs, **fields})


def test_a_restore_names_the_sequences_whose_output_is_void():
    done = restored(commit(3), commit(6), [commit(4), commit(5), commit(6)], "run", keep_output=False)
    assert (done.sequence, done.kind, done.parent) == (7, "restore", 3)
    assert to_retract(done) == Span(3, 7)
    assert retracted(done) == []
    assert done.outputs == ()


def test_a_restore_that_keeps_output_voids_nothing():
    assert to_retract(restored(commit(3), commit(6), [commit(6)], "run", keep_output=True)) is None


def test_output_that_may_not_be_published_is_carried_on_under_its_own_sequence():
    claim = commit(4, "claim", outputs=commit(3).outputs, metadata={"outputs-of": "3"})
    for target, later in ((commit(3), [claim]), (claim, [])):
        done = restored(target, claim, later, "run", keep_output=False)
        assert (done.outputs, outputs_of(done)) == (commit(3).outputs, 3)


def test_once_a_batch_follows_a_restore_nothing_is_owed_and_what_was_void_is_remembered():
    done = restored(commit(3), commit(6), [commit(6)], "run", keep_output=False)
    claimed = done.replace(kind="claim")
    assert retracted(claimed) == [Span(3, 7)]
    batch = commit(9, metadata=settled(claimed))
    assert to_retract(batch) is None
    assert retracted(batch) == [Span(3, 7)]
    assert [sequence in Span(3, 7) for sequence in (3, 4, 6, 7)] == [False, True, True, False]


def test_a_second_restore_before_any_run_takes_the_place_of_the_first():
    first = restored(commit(3), commit(6), [commit(6)], "run", keep_output=False)
    second = restored(commit(5), first, [commit(6), first], "run", keep_output=False)
    assert to_retract(second) == Span(5, 8)
    assert retracted(second) == []
