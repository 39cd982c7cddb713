import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._checkpoint.pins import Pin
from tidewheel._checkpoint.retention import oldest_kept
from tidewheel.errors import ConfigError

NOW = 100
sequences = st.lists(st.integers(0, 50), unique=True).map(sorted)
pins = st.lists(
    st.builds(
        Pin,
        name=st.just("p"),
        kind=st.sampled_from(["savepoint", "fork", "reader", "adopter"]),
        sequence=st.integers(0, 50),
        files=st.just(()),
        manifest=st.none() | st.just(b"copy"),
        expires_at=st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]),
    ),
    max_size=4,
)


@given(sequences, st.integers(1, 60), pins)
def test_the_newest_k_and_every_record_that_a_pin_needs_are_kept(sequences, keep, pins):
    bound = oldest_kept(sequences, keep, pins, NOW)
    kept = [sequence for sequence in sequences if bound is not None and sequence >= bound]
    assert kept[-keep:] == sequences[-keep:]
    needed = {pin.sequence for pin in pins if pin.manifest is None and (pin.expires_at is None or pin.expires_at > NOW)}
    assert needed & set(sequences) <= set(kept)


@given(sequences, st.integers(1, 60), pins)
def test_no_more_is_kept_than_those_need(sequences, keep, pins):
    bound = oldest_kept(sequences, keep, pins, NOW)
    if bound is not None:
        held = {pin.sequence for pin in pins if pin.manifest is None and pin.holds(NOW)}
        assert bound == sequences[-keep:][0] or bound in held


@given(sequences, st.integers(1, 60), pins, st.none() | st.integers(0, 60))
def test_young_checkpoints_are_kept_too_and_nothing_else(sequences, keep, pins, young):
    bound = oldest_kept(sequences, keep, pins, NOW, young)
    by_number = oldest_kept(sequences, keep, pins, NOW)
    kept = {sequence for sequence in sequences if bound is not None and sequence >= bound}
    wanted = {sequence for sequence in sequences if by_number is not None and sequence >= by_number}
    wanted |= {sequence for sequence in sequences if young is not None and sequence >= young}
    assert kept == wanted


def test_a_savepoint_has_its_own_copy_and_keeps_no_record():
    savepoint = Pin("p", "savepoint", 1, (), manifest=b"copy")
    assert oldest_kept([1, 2, 3], 1, [savepoint]) == 3


def test_nothing_is_kept_of_nothing_and_k_below_1_is_refused():
    assert oldest_kept([], 1) is None
    for keep in (0, -1):
        with pytest.raises(ConfigError, match=f"at least 1, not {keep}"):
            oldest_kept([1], keep)
