"""B3: decoding refuses incomplete and damaged checkpoints with the reason and the place, and never returns part of one."""

import random

import msgspec
import pytest

from tidewheel._checkpoint import envelope
from tidewheel._checkpoint.encoding import MAGIC, VERSION, decode, encode
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.errors import CorruptError, StateError

STATE = Manifest(
    CheckpointId("orders", 7, created_at=1),
    event_count=9,
    operator_states={"sum": random.Random(1).randbytes(50)},
    source_offsets={"log": 8},
)
DATA = encode(STATE)


def refuse(data: bytes, text: str, error: type[Exception] = CorruptError, stream_id: str | None = None) -> None:
    with pytest.raises(error, match=rf"checkpoint at chain/7\.rec: .*{text}"):
        decode(data, stream_id, where="at chain/7.rec")


def test_b3_empty():
    refuse(b"", "empty")


def test_b3_short():
    refuse(DATA[:20], "20 bytes; the smallest record has 32")


def test_b3_truncated_at_any_byte():
    for length in range(len(DATA)):
        refuse(DATA[:length], "")


def test_b3_trailing_bytes():
    refuse(DATA + b"\x00", f"1 trailing bytes follow its end at byte {len(DATA)}")


def test_b3_duplicate_names():
    body = msgspec.msgpack.decode(envelope.unseal(MAGIC, VERSION, DATA, "it")[1])
    offsets = body.index([["log", 8]])
    body[offsets] = [["log", 8], ["log", 9]]
    refuse(
        envelope.seal(MAGIC, VERSION, msgspec.msgpack.encode(body)),
        "source_offsets: the name 'log' is there twice",
    )


def test_b3_wrong_checksum():
    refuse(DATA[:-1] + bytes([DATA[-1] ^ 1]), rf"the checksum at byte {len(DATA) - 8} is")


def test_b3_any_flipped_byte():
    for at in range(len(DATA)):
        for flip in (1, 128, 255):
            refuse(DATA[:at] + bytes([DATA[at] ^ flip]) + DATA[at + 1 :], "")


def test_b3_wrong_stream():
    refuse(DATA, "it is of stream 'orders', not of 'payments'", StateError, stream_id="payments")


def test_b3_newer_format_version():
    newer = envelope.seal(MAGIC, VERSION + 1, b"a later body")
    refuse(newer, f"format version {VERSION + 1}, and this Tidewheel reads up to {VERSION}", StateError)


def test_b3_lengths_past_the_end():
    forged = bytearray(DATA)
    forged[16:24] = (2**64 - 1).to_bytes(8, "little")
    refuse(bytes(forged), "byte 16 gives a body of 18446744073709551615 bytes")


def test_b3_random_bytes_and_random_bodies_never_crash_it():
    dice = random.Random(3)
    for _ in range(3_000):
        noise = dice.randbytes(dice.randrange(120))
        refuse(noise, "")
        refuse(MAGIC + noise, "")
        refuse(envelope.seal(MAGIC, VERSION, noise), "")
