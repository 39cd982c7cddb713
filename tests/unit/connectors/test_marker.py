"""The batch marker: what is published already, what is not, and what is unknown."""

from __future__ import annotations

import pytest

from support.internals import open_store
from tidewheel._connectors.marker import Marker
from tidewheel._connectors.sink import Publication
from tidewheel.errors import StateError


def publication(sequence: int, *tokens: bytes, job: str = "orders") -> Publication:
    return Publication(open_store("memory:marker"), job, "out", sequence, tokens or (b"%d" % sequence,), None)


def published(*sequences: int) -> Marker:
    marker = Marker()
    for sequence in sequences:
        marker = marker.after(publication(sequence))
    return marker


def test_what_was_published_is_recognised_after_a_round_trip():
    marker = Marker.decoded(published(2, 5).encoded())
    assert [marker.has(publication(sequence)) for sequence in (2, 5, 6)] == [True, True, False]
    assert Marker.decoded(None).has(publication(1)) is False


def test_a_job_that_starts_over_is_refused():
    with pytest.raises(StateError, match="sequence 5 of job 'orders' differs from what was published"):
        published(2, 5).has(publication(5, b"of another life"))
    with pytest.raises(StateError, match="published with another state than this one"):
        published(2, 5).has(publication(3))


def test_a_node_with_other_state_is_not_advised_to_remove_the_output():
    """The output is good: it is that of the nodes with the right state."""
    with pytest.raises(StateError, match=r"Start this node with the --state of the fleet.*Do not delete") as refused:
        published(2, 5).has(publication(3, job="orders/1"))
    assert "reset" not in str(refused.value)


def test_it_stays_small():
    marker = published(*range(1, 1000))
    assert len(marker.published) == 64
    assert marker.has(publication(950))
    with pytest.raises(StateError, match="replaced this one long ago"):
        marker.has(publication(1))
