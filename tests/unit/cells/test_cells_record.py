from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._cells import record as records
from tidewheel._cells.record import FORMAT, CellRecord
from tidewheel.errors import CorruptError


@given(st.text(), st.binary(), st.none() | st.binary(), st.none() | st.text(), st.none() | st.binary())
def test_records_come_back_as_they_were(type_name, token, value, ticket, proof):
    record = CellRecord(FORMAT, type_name, token, value, ticket, proof)
    assert records.decode(records.encode(record), "x") == record


@given(st.binary(max_size=50))
def test_other_bytes_are_refused_by_name(data):
    with pytest.raises(CorruptError, match="the data at cell x is not a cell's record"):
        records.decode(b"\xc1" + data, "cell x")


def test_a_newer_format_is_refused():
    with pytest.raises(CorruptError, match=r"newer version of Tidewheel \(format 2, known here: 1\); upgrade"):
        records.decode(records.encode(CellRecord(2, "int", b"", b"")), "cell x")


def test_tokens_differ():
    assert len({records.new_token() for _ in range(1000)}) == 1000


def test_the_signature_covers_all_that_a_reader_relies_on():
    same = records.statement("ns/x", "int", b"t", b"v")
    for other in (
        records.statement("ns/y", "int", b"t", b"v"),
        records.statement("ns/x", "str", b"t", b"v"),
        records.statement("ns/x", "int", b"u", b"v"),
        records.statement("ns/x", "int", b"t", b"w"),
        records.statement("ns/x", "int", b"t", None),
    ):
        assert other != same
