"""B2: magic, version, length, body, checksum; deterministic, and nothing is lost. The seed's layout, too."""

import subprocess
import sys

import pytest

from tidewheel._checkpoint.encoding import decode, encode
from tidewheel.checkpoints import CheckpointId, Manifest, from_seed, to_seed
from tidewheel.errors import StateError

STATE = Manifest(
    CheckpointId("full-test", 77, created_at=123),
    epoch=1_700_000_000_000_000_000,
    event_count=77,
    operator_states={"window_op": b"window_state_data", "agg_op": b"\x01\x02"},
    source_offsets={"source-0": 8192, "topic": '{"topic":{"0":17}}'},
    metadata={"app_version": "1.2.3"},
)


def test_b2_the_layout_is_magic_version_length_body_checksum():
    data = encode(STATE)
    assert data.startswith(b"TIDEWCKP\x0a\x00")
    assert int.from_bytes(data[16:24], "little") == len(data) - 24 - 8


def test_b2_nothing_is_lost():
    back = decode(encode(STATE), "full-test")
    assert back == STATE
    assert (back.id.stream_id, back.id.created_at, back.metadata) == (
        "full-test",
        123,
        {"app_version": "1.2.3"},
    )


def test_b2_none_yet_and_0_stay_apart():
    for watermark in (None, 0):
        assert decode(encode(STATE.replace(epoch=watermark))).epoch is watermark


def test_b2_the_same_checkpoint_gives_the_same_bytes_in_every_process():
    """Hash seeds and the order in which names were added must not show."""
    program = (
        "from tidewheel._checkpoint.encoding import encode\n"
        "from tidewheel._checkpoint.manifest import *\n"
        "names = {'b': 1, 'a': 2, 'c': 3}\n"
        "order = sorted(names, key=hash)\n"
        "state = Manifest(CheckpointId('s', 1, 1), counts={name: names[name] for name in order})\n"
        "print(encode(state).hex())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_b2_the_seeds_layout_is_exported_and_imported_byte_for_byte():
    plain = STATE.replace(source_offsets={"source-0": 8192}, metadata={})
    data = to_seed(plain)
    assert data == (
        (77).to_bytes(8, "little")
        + (1_700_000_000_000_000_000).to_bytes(8, "little")
        + (77).to_bytes(8, "little")
        + b"\x02\0\0\0"
        + b"\x06\0\0\0agg_op"
        + b"\x02\0\0\0\x01\x02"
        + b"\x09\0\0\0window_op"
        + b"\x11\0\0\0window_state_data"
        + b"\x01\0\0\0"
        + b"\x08\0\0\0source-0"
        + (8192).to_bytes(8, "little")
    )
    assert from_seed("full-test", data) == plain


@pytest.mark.parametrize(
    ("changes", "named"),
    [({}, "topic"), ({"source_offsets": {}}, "metadata"), ({"epoch": None}, "epoch")],
)
def test_b2_checkpoints_that_the_seeds_layout_cannot_hold_are_refused_by_name(changes, named):
    with pytest.raises(StateError, match=named):
        to_seed(STATE.replace(**changes))
