"""What fuzzing has found: bytes at which readers raised errors of their libraries, or did not come back."""

from __future__ import annotations

import json

import msgspec
import pytest

from fuzz.targets import TARGETS
from fuzz.trial import attempt
from tidewheel import codecs
from tidewheel.errors import ConfigError

FOUND = {
    "stored-key": [b"s\xff", b"m\xc1", b"m" + b"\x91" * 5000],
    "timer": [b"m\x94\xa1w", b"m\x94\xa1x\xc4\x01a\xc4\x01a\xa0", b"m\x94\xa1w\xc4\x01a\x80\xa0"],
    "state-file-index": [msgspec.msgpack.encode([["count"], [[0, 7, b"sa", 1, 0, 0, 2, 2, 0]]])],
    "position": [b'{"0":"x"}', b'{"0":[]}', b'"{"', b'"3"', b'{"#id":{}}', b'{"0":1e999}'],
    "inbox-block": [b"\x94\xc4\x01s\xc4\x02ab\xc4\x03\x01\x00\x00\xc4\x04a\nb\n"],
    "described-cell-type": [b'{"is":"record","name":"A","fields":[["x","int"]]}', b'{"is":"list"}', b"3"],
    "registry-payload": [b'{"schema":3}', b"[" * 5000, b'{"error_code":"x"}', b'{"schema":"x","references":[{}]}'],
    "spark-file-entry": [b"x", b"3\t{}", b'3\t{"path":1,"batchId":"x","timestamp":2}'],
    "spark-offsets": [b"v1", b"v1\n{}\n1"],
    "typed-on-a-command-line": ["²".encode(), b"9" * 5000, b"[" * 5000],
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, each in FOUND.items() for data in each])
def test_these_bytes_are_read_or_refused(name, data):
    attempt(TARGETS[name], data)


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "record", "name": "E", "fields": []}, {"type": "fixed", "name": "F", "size": 0}],
    ids=["null", "record", "fixed"],
)
def test_an_avro_schema_with_an_array_of_nothing_is_refused(items):
    """Eleven bytes stand for 2 ** 62 such values: fastavro reads them until memory is full, and takes no signal."""
    fields = [{"name": "x", "type": {"type": "array", "items": items}}]
    with pytest.raises(ConfigError, match="an array of values that take no bytes"):
        codecs.avro(json.dumps({"type": "record", "name": "A", "fields": fields}))
