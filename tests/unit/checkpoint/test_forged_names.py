"""Names in stored objects that would leave the folder that they belong to."""

import msgspec
import pytest
from xxhash import xxh64_intdigest

from support.checkpoint_strategies import full_state
from support.internals import FileRef, PartRef, ShardParts
from tidewheel._checkpoint import pins
from tidewheel._checkpoint.encoding import MAGIC, VERSION, decode, encode
from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._checkpoint.manifest import SparkLog
from tidewheel._checkpoint.pages import StoredPage, encode_page
from tidewheel.errors import CorruptError

EVIL = [
    "../up",
    "/../up",
    "state/../../up",
    ".bashrc",
    "state/.hidden",
    "a//b",
    "//a",
    "a\n",
    "a b",
    "",
    "a\x1b[2J",
    "\0",
]


def parts(name: str) -> ShardParts:
    return ShardParts(None, (PartRef(FileRef(name, 1, 1), 1, 1, 1),))


@pytest.mark.parametrize("name", EVIL)
def test_a_manifest_with_a_forged_name_is_refused(name):
    state = full_state()
    forged = [
        state.replace(driver=parts(name)),
        state.replace(shards={0: parts(name)}),
        state.replace(lineage=f"{name}/"),
        state.replace(run=f"{name}/"),
        state.replace(spark=SparkLog("q", files={f"0/{name}": "text"})),
    ]
    for each in forged:
        with pytest.raises(CorruptError):
            decode(encode(each))


@pytest.mark.parametrize("numbers", [{"n_shards": 2**40}, {"n_shards": 0}, {"parallelism": 2**40}, {"parallelism": -1}])
def test_a_manifest_with_a_forged_size_is_refused(numbers):
    data = encode(full_state().replace(shards={}))
    decode(data)
    body = msgspec.msgpack.decode(decode_body(data))
    place = {"n_shards": 15, "parallelism": 16}
    for name, number in numbers.items():
        body[place[name]] = number
    with pytest.raises(CorruptError, match="does not decode"):
        decode(sealed(body))


def decode_body(data: bytes) -> bytes:
    return unseal(MAGIC, VERSION, data, "it")[1]


def sealed(body: object) -> bytes:
    return seal(MAGIC, VERSION, msgspec.msgpack.encode(body))


@pytest.mark.parametrize("name", EVIL)
def test_a_page_with_a_forged_name_is_refused(name):
    data = encode_page({0: parts(name)})
    page = StoredPage(data, FileRef("state/p", len(data), xxh64_intdigest(data)), "memory:")
    with pytest.raises(CorruptError):
        page[0]


@pytest.mark.parametrize("name", EVIL)
def test_a_pin_with_a_forged_name_is_refused(name):
    for pin in (pins.Pin(name, "reader", 1, ()), pins.Pin("mine", "reader", 1, (name,))):
        with pytest.raises(CorruptError):
            pins._decode(pins._encode(pin), "the pin")
