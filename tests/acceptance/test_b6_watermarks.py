"""B6: watermarks never go back; "none yet" is not 0."""

import itertools

import pytest

from tidewheel._checkpoint.encoding import decode, encode
from tidewheel.checkpoints import CheckpointId, CheckpointManager, CheckpointStore, Manifest
from tidewheel.errors import StateError

_fresh = itertools.count()


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path) -> str:
    return f"memory:b6-{next(_fresh)}" if request.param == "memory" else f"file://{tmp_path}"


def checkpoint(sequence: int, epoch: int | None) -> Manifest:
    return Manifest(CheckpointId("s", sequence), epoch=epoch)


def test_b6_none_yet_is_not_0_anywhere(url):
    assert decode(encode(checkpoint(1, None))).epoch is None
    assert decode(encode(checkpoint(1, 0))).epoch == 0
    manager = CheckpointManager(CheckpointStore.open(url), every_events=1)
    assert manager.on_event("s", 1).epoch is None
    assert CheckpointStore.open(url).latest("s").epoch is None
    assert manager.on_event("s", 2, epoch=0).epoch == 0


def test_b6_a_managers_watermark_never_goes_back_also_over_a_restart(url):
    marks = [None, -3, None, 5, 2, None, 9, 0]
    seen = []
    for sequence, mark in enumerate(marks):
        manager = CheckpointManager(CheckpointStore.open(url), every_events=1)
        manager.recover("s")
        seen.append(manager.on_event("s", sequence, epoch=mark).epoch)
    assert seen == [None, -3, -3, 5, 5, 5, 9, 9]


@pytest.mark.parametrize("lower", [None, 4, 0])
def test_b6_a_store_refuses_a_watermark_that_goes_back(url, lower):
    store = CheckpointStore.open(url)
    store.save(checkpoint(1, 5))
    with pytest.raises(StateError, match=r"has the epoch (None|4|0), but checkpoint 1 had 5"):
        store.save(checkpoint(2, lower))
    store.save(checkpoint(2, 5))


def test_b6_a_jobs_chain_refuses_it_too_except_for_a_restore(url):
    job = CheckpointStore.open(url).of("s")
    job.commit(checkpoint(1, 5))
    with pytest.raises(StateError, match="an epoch never goes back"):
        job.commit(checkpoint(2, 4))
    job.commit(checkpoint(2, 4).replace(kind="restore"))
    assert CheckpointStore.open(url).latest("s").epoch == 4
