"""Which files a batch takes: each once, in order, within the limits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel._connectors.files.choose import Limits, ListedFile, first_batch, in_order, waiting

FILES = st.lists(
    st.builds(ListedFile, st.sampled_from([f"{n:02}" for n in range(12)]), st.integers(0, 9), st.integers(0, 5)),
    unique_by=lambda file: file.path,
)
LIMITS = st.builds(
    Limits,
    max_files=st.none() | st.integers(1, 4),
    max_bytes=st.none() | st.integers(1, 8),
    max_age_ms=st.none(),
    settle_ms=st.just(0),
    newest_first=st.booleans(),
    order=st.sampled_from(["time", "name"]),
)


def taken_of(files: list[ListedFile], limits: Limits) -> list[list[ListedFile]]:
    """Return the batches until nothing is left."""
    batches: list[list[ListedFile]] = []
    left = waiting(files, (), limits, 10)
    while left:
        count = first_batch(left, limits)
        batches.append(in_order(left[:count], limits.order))
        left = left[count:]
    return batches


@settings(deadline=None)
@given(FILES, LIMITS)
def test_every_file_is_taken_once_with_any_limits(files, limits):
    batches = taken_of(files, limits)
    assert sorted(file for batch in batches for file in batch) == sorted(files)
    for batch in batches:
        assert batch == in_order(batch, limits.order)
        assert limits.max_files is None or len(batch) <= limits.max_files
        assert limits.max_bytes is None or len(batch) == 1 or sum(file.size for file in batch) <= limits.max_bytes


@settings(deadline=None)
@given(FILES, LIMITS)
def test_batches_follow_each_other_in_the_order_of_files(files, limits):
    batches = taken_of(files, limits)
    if limits.newest_first:
        batches.reverse()
    assert [file for batch in batches for file in batch] == in_order(files, limits.order)


@settings(deadline=None)
@given(FILES, st.none() | st.integers(0, 9))
def test_only_a_time_that_is_given_leaves_out_older_files(files, first):
    kept = waiting(files, (), Limits(), 10, first)
    assert set(kept) == {file for file in files if first is None or file.modified_ms >= first}


@settings(deadline=None)
@given(FILES, st.integers(1, 9))
def test_a_file_that_has_just_changed_waits_until_it_has_settled(files, settle):
    limits = Limits(settle_ms=settle)
    assert all(10 - file.modified_ms >= settle for file in waiting(files, (), limits, 10))
    assert set(waiting(files, (), limits, 10 + settle)) == set(files)
