"""The errors of decoding untrusted bytes."""

from __future__ import annotations

import msgspec
import pytest

from tidewheel._core.undecodable import UNDECODABLE


@pytest.mark.parametrize(
    ("data", "type"),
    [
        pytest.param(b"\xc1", str, id="no msgpack"),
        pytest.param(b"\x07", str, id="another type"),
        pytest.param(b"\xa1\x80", str, id="text that is not UTF-8"),
        pytest.param(b"\x91" * 100_000 + b"\xc0", object, id="nested too deeply"),
    ],
)
def test_all_decoding_errors_are_caught_as_undecodable(data, type):
    with pytest.raises(UNDECODABLE):
        msgspec.msgpack.decode(data, type=type)
