import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._checkpoint.manifest import SparkLog
from tidewheel.checkpoints import CheckpointId, Manifest, from_seed, to_seed
from tidewheel.errors import CorruptError, StateError

u64 = st.integers(0, 2**64 - 1)

# Written by hand from the seed's table.
BYTES = (
    b"\x4d\x00\x00\x00\x00\x00\x00\x00"  # sequence 77
    b"\x00\xca\x9a\x3b\x00\x00\x00\x00"  # watermark 1,000,000,000 ns
    b"\x50\x00\x00\x00\x00\x00\x00\x00"  # 80 events
    b"\x02\x00\x00\x00"  # two steps
    b"\x03\x00\x00\x00agg\x04\x00\x00\x00\x01\x02\x03\x04"
    b"\x06\x00\x00\x00filter\x00\x00\x00\x00"
    b"\x01\x00\x00\x00"  # one source
    b"\x06\x00\x00\x00kafk\xc3\xa4\x00\x20\x00\x00\x00\x00\x00\x00"  # 8192
)
STATE = Manifest(
    CheckpointId("s", 77, 0),
    epoch=1_000_000_000,
    event_count=80,
    operator_states={"filter": b"", "agg": b"\x01\x02\x03\x04"},
    source_offsets={"kafkä": 8192},
)


def test_export_is_byte_for_byte_the_seeds_table():
    assert to_seed(STATE) == BYTES


def test_import_reads_the_seeds_table():
    state = from_seed("s", BYTES, created_at=9)
    assert state == STATE
    assert state.id.created_at == 9


def test_an_empty_checkpoint_is_header_and_two_zeros():
    state = Manifest(CheckpointId("s", 42), epoch=999, event_count=42)
    assert to_seed(state) == (42).to_bytes(8, "little") + (999).to_bytes(8, "little") + (42).to_bytes(
        8, "little"
    ) + bytes(8)


@given(
    st.builds(
        Manifest,
        st.builds(CheckpointId, st.just("s"), st.integers(0, 2**63 - 1)),
        epoch=u64,
        event_count=u64,
        operator_states=st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=3),
        source_offsets=st.dictionaries(st.text(max_size=5), u64, max_size=3),
    )
)
def test_exported_checkpoints_come_back(state):
    assert from_seed("s", to_seed(state)) == state


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metadata": {"app": "1"}}, "metadata"),
        ({"epoch": None}, "epoch is none yet"),
        ({"epoch": -1}, "epoch is -1"),
        ({"event_count": -1}, "event_count"),
        ({"source_offsets": {"topic": '{"0":1}'}}, r"source_offsets\['topic'\]"),
        ({"source_offsets": {"log": -1}}, r"source_offsets\['log'\]"),
        ({"source_offsets": {"log": 2**64}}, r"source_offsets\['log'\]"),
        ({"spark": SparkLog("q")}, "spark"),
        ({"kind": "flush", "run": "r"}, "kind is set.*run is set"),
        ({"counts": {"in": 1}}, "counts"),
        ({"n_shards": 8}, "n_shards"),
    ],
)
def test_checkpoints_that_the_layout_cannot_hold_are_refused_by_name(changes, named):
    with pytest.raises(StateError, match=named):
        to_seed(STATE.replace(**changes))


def test_every_truncation_is_refused_with_its_place():
    for length in range(len(BYTES)):
        with pytest.raises(CorruptError, match=r"byte \d+"):
            from_seed("s", BYTES[:length])


def test_trailing_bytes_are_refused():
    with pytest.raises(CorruptError, match=rf"byte {len(BYTES)}: 1 trailing"):
        from_seed("s", BYTES + b"\x00")


def test_a_duplicate_name_is_refused():
    operator = b"\x01\x00\x00\x00a\x00\x00\x00\x00"
    with pytest.raises(CorruptError, match="step 'a' is there twice"):
        from_seed("s", bytes(24) + b"\x02\x00\x00\x00" + operator * 2 + bytes(4))
    source = b"\x01\x00\x00\x00a" + bytes(8)
    with pytest.raises(CorruptError, match="source 'a' is there twice"):
        from_seed("s", bytes(28) + b"\x02\x00\x00\x00" + source * 2)


def test_a_count_past_the_end_is_refused_at_once():
    with pytest.raises(CorruptError, match="4294967295 steps"):
        from_seed("s", bytes(24) + b"\xff\xff\xff\xff" + bytes(40))


def test_a_name_with_invalid_utf8_is_refused():
    with pytest.raises(CorruptError, match="UTF-8"):
        from_seed("s", bytes(24) + b"\x01\x00\x00\x00" + b"\x01\x00\x00\x00\xff" + bytes(8))


def test_a_sequence_beyond_ours_is_refused():
    with pytest.raises(CorruptError, match="sequence"):
        from_seed("s", b"\xff" * 8 + bytes(24))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_are_a_checkpoint(data):
    try:
        state = from_seed("s", data)
    except CorruptError:
        return
    assert from_seed("s", to_seed(state)) == state
