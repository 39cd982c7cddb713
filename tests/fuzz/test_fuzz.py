"""Readers of bytes that others may have written take any bytes: no other error, no hang, little memory, nothing elsewhere.

`make fuzz` looks longer, guided by coverage.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, Target
from fuzz.trial import Memory, attempt

TRIALS = 60
_WORDS = (
    b"\x00",
    b"\xff",
    b"\x80\x80",
    b"[" * 3000,
    b'{"a":' * 2000,
    b"9" * 400,
    b"1e999",
    b"\n",
    b'"',
    b"\xc1",
    b"-1",
)


@st.composite
def changed(draw: st.DrawFn, target: Target) -> bytes:
    """Return an example of a target with a few bytes changed, taken out, repeated or put in; or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(target.examples())))
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 8))
        new = draw(
            st.one_of(st.binary(max_size=8), st.sampled_from(_WORDS), st.just(bytes(data[at : at + 4 * length])))
        )
        data[at : at + length] = new
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused(name):
    target = TARGETS[name]
    memory = Memory(target)
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")

    @seed(chosen)
    @settings(max_examples=TRIALS, deadline=None, database=None)
    @given(changed(target))
    def trial(data: bytes) -> None:
        attempt(target, data)

    trial()
    memory.check()
