import base64

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.checkpoint_strategies import checkpoint_states, full_state
from support.internals import FileRef, PartRef, ShardParts
from tidewheel._checkpoint import encoding, envelope
from tidewheel._checkpoint.encoding import MAGIC, VERSION, decode, encode
from tidewheel._state.type_description import Field, StateType
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.errors import CorruptError, StateError

REFUSED = (CorruptError, StateError)

# `full_state()` as format 4 had it.
FORMAT_4 = (
    "VElERVdDS1AEAAEAfwIAAKMBAAAAAAAAKLUv/WB/Ac0MAIaZWjtQaZwDIDPTERU7JLlw4iB3miQR8oLxd47P+h2F/5PIWNkdv9go1krFYFXD2v"
    "FL+5ZUO4aalRUeA22ZZE8ATABHABEaMJQ8ombRydaZ+bx3D4IkqMWaJDzvmw2CiSPi0Ewc7dBYVKaL9vZvQOhCKe2f4/euew8cIW6sF8JiKGl7"
    "r0CCCg8qAlxAW6elUg+BRyGwuzDAIdnUtDwkFhiFvwaHQ8zAIApd0rKPCMEovnvYc++1rVanxRyYoHzeORA4+M5NaGvSKNm0t45LWSOKqMjrYq"
    "vPJSsFFEaaLdsGTslk9hvNjUAi2rvHzOWPmfv+F2QVD9Z03wFwf6GU9s5g0ML3VE3U9g7fGxbeI35mSUNQbAh6BzupSdowf8zw2IH7jrEXCQjW"
    "jKC9Rfz8/huRJOvwO4P/vXcifZ3DRYzYEFunZC1ZWwJWySgZxk0mKq1m9cFivbGvg9j3fVYqTYqnrVnl5XnIVMbPmi4WDwARtrLhWGW9SBL75r"
    "cJE+hyNXwOxCjcJSUkztE9+ILiIesqrJNqGbkimAG1cEYihgCzGw=="
)

# The same as format 5 had it: a step's state as flat fields.
FORMAT_5 = (
    "VElERVdDS1AFAAEAsAIAAMMBAAAAAAAAKLUv/WCwAc0NAGabYDxQS9QGIDPpmqS5jkXQ1HjUR5ZoAxdS1EjOPgPRkGG/W+2V7nU3oljX"
    "q7qoBvJ4WXIajEVgMc6j4yNCSQZTAFIATwAXInQUeTyMVnlt1HjeNxd9KCqFSorOe1WnBLRQ0FLhximpjAGZMOZgIjEVZ+8KgKo6sX+t"
    "37fNTfSr5Gdz5WYmlTkXcaDDhIsBoejaSLG1E+E2BNpvbTmJQLSFDDQI4hkpjwgGy8KdY9OgZjyQQBhI7+NNlsVvznrt3eKL2XgzEhUS"
    "z/uGgha9axowldiEuOKM49TlkCwTiKnuxYOBlwQzQ0UM8Q0NGGTIBMHe/Wly/9Nk97/gupigMr8L0L6qE3tv9OfhsbzImb1H7wAe3qX+"
    "7giOPg9Hn4ewPICrcAhBaOdCEq1XwQNOVE4WqjoxC3fNcA0RNFoqzqT+dv8OKXJx+r3R7945EJx9o0mNh6drI3UptDiDNbkkl6UhqLD1"
    "Ei8e69n8cJbwcH6PtlJR0sE0WojpfNTzakdltlxywesDEgDRt7LBWWW9kKQOkt8mTKDL1X3GjRMdiFG4S0pInKN78AXFQ9ZVWCfVwnEo"
    "j2cun8OEAghfsFLEup84"
)

# The same as format 6 had it: the layout of a step's state as text.
FORMAT_6 = (
    "VElERVdDS1AGAAEAyQIAANMBAAAAAAAAKLUv/WDJAU0OAGYcZD1wSdQBqTpdGCVdsIAOBKmIbfaeyevnbzu1JJ+gfXwjUgQRkZQGsWSFpFid9bPW"
    "q7TNUUw7ARMxWW3/3kkGVQBWAFIAOWZMwdOSBAK1aie+kgN6754UkrCVOiU+7xZLISKmihgJWNJZbYwIlbUGlKmxefv3EFks1f65fu+6F9HwksGb"
    "XfCGVtt7DwYyRKgYMJLwlZVrPw/vQg7cd31ZbyIgdaMCLYqZygpEcnF53HoOq0XNcDCJNLFiCKQuz3fveu79ZqxdiTcQExPQu2XBSe+cBcuysMh1"
    "ahQ0Zpu3jleYY8JQosaCMyBNzCCgm0oGVER7d8jJ+iEne/8KsIqIOrN3AdxbLNXeGx1q+Dwzk27veWOpR52PCwlAw/vU3y3JUghmKfQOlwd4Fwyj"
    "B/3eaKoWJ4BEqk5qgsVSjcKt1wzrdVVibN6m/n7/jkmCdfq90f/eO5GcucVNDZgpfGWFa7y5wkXBJtjFHZi4NiMzoAveDOYMAszZu7y2kpNPrvJG"
    "zeelpli/OrPLJ1jEnsGCLBITAPW4sklaZb2QJBqS3y1MGJfbRbXW51ldUYwchWelBMK5xAc3Wjy4c4VLUi0ch/J45vI5TCj5Z7yRB3BW9w=="
)
FORMAT_7 = (
    "VElERVdDS1AHAAEAigIAAK0BAAAAAAAAKLUv/WCKAR0NAPaZXDxQaZwDIDOZJoJuMAXI9JyxEC3RkRsWbadInMEhddgmsmOLrPyJ7ZXGEjHYzDy0"
    "0lNpahbBBaYMwY2EJBlOAE0ATQDTRqu0V8RYvHcP6kzUCZUTnPeqTghYoWAlgo1TUhwDIt2tgYS06uX+OTxVndt/7veuexE9UbTp0ij2MinuvQcD"
    "FyBUDPhA9oqTq3IeXoWvgdvTDAeRx4LUPiYJ03z3sM/v17XbFe0FQoHE4h1nnDeZDL1nChhvNpfKjWLCWy+X8YwzlWUaUUUCWpW1WFjQcmBeqHjh"
    "tRM0DUUeAQx/pUVO7v1equSg0nEBAWB4j/q7IxfqTBfqvAPmAR7FwudBv/eJaLUIHlCiUpJQ1blROH7NwK8d8neN4RcRgLpPgfbAO+PkEbnANI4D"
    "NFbq5aL+fv+NKJJl+r2h/71nMI5XpaKEc2m8oMV5qGfWj0oNc0kGs2ewQINIkO3dJ4zWP2G0958gq4igUnsXkL+qc3tv6E4QABbSyncLE8bldlGt"
    "9XlWXxQjR+FZKYFwLvHBDTUObwCMIalmjkMhPDP8HOYeMaBB1w9V2Z4="
)

# The same as format 8 had it: a reference table in one part.
FORMAT_8 = (
    "VElERVdDS1AIAAEArAIAAMUBAAAAAAAAKLUv/WCsAd0NAJbbYTxQS5wDIDPpmqS5jiWo2k78K8sOeOj/naIbB5FutC/auEVWP6QbxVq9qkuINI+nJsQo"
    "L6u3RoBGsMdNkgxUAFIAUgDXwqajx1Rx1c6LSYzn/YPRh8JK6qTovE8slYgVK1YoXEmn1S0cFOYgROZlcfewAZpYyv17/f59cKIrylZhG+VeqNVBWADB"
    "hgkVA0LRxaQEsx0DMEMNiphKyfS4kG08Q0ZuUC8iSKAr1jtVVLb5D2bvvWP4cpi8F4kGEM979rLHyXjRu4chZw4H18lpaMQWdxn3smdpGYZUicRrci2e"
    "K1oU0IslccQBDLSKiTq3dwHeTyzl3h/64/B4Wibt3vHFUo06GxciAA7vUn/3A0efCkefh8g8AlI0hCQ0hCGp2rtgilSdVIWJpZzGM+xFhg3h/ddZhhKB"
    "6AsdCAESSAqJeKocErdIhKS5MjKxq/NeZcXiTupv+M+QHlqm3x/64XsmZ4lZS0I6uEosXp2PmmoN69wyh2hR+wcONgfl4N69wmz9FWaD/wERAH4t4Syk"
    "le8WJozL7aJa6/OsvihGjsKzUgLhXOKDG2oc3gAYQ1LNHIdCeGb4Ocw9pfLNR1Jwr+A="
)


@given(checkpoint_states())
def test_an_encoded_manifest_is_decoded_unchanged(state):
    back = decode(encode(state), state.id.stream_id)
    assert back == state
    assert back.id.created_at == state.id.created_at


@given(checkpoint_states())
def test_equal_checkpoints_give_equal_bytes_in_any_order_of_mappings(state):
    turned = state.replace(
        **{
            field.name: dict(reversed(list(value.items())))
            for field in msgspec.structs.fields(state)
            if isinstance(value := getattr(state, field.name), dict)
        }
    )
    assert encode(turned) == encode(state)
    assert encode(decode(encode(state))) == encode(state)


def test_every_field_comes_back():
    assert decode(encode(full_state())) == full_state()


def test_the_envelope_is_as_written_down():
    data = encode(full_state())
    assert data[:8] == b"TIDEWCKP"
    assert int.from_bytes(data[8:10], "little") == VERSION
    assert 24 + int.from_bytes(data[16:24], "little") + 8 == len(data)


def test_every_truncation_is_refused():
    data = encode(full_state())
    for length in range(len(data)):
        with pytest.raises(CorruptError):
            decode(data[:length])


def test_every_flipped_byte_is_refused():
    data = encode(full_state())
    for at in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            with pytest.raises(CorruptError):
                decode(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])


@given(st.binary(min_size=1, max_size=20))
def test_trailing_bytes_are_refused(rest):
    with pytest.raises(CorruptError, match="trailing"):
        decode(encode(full_state()) + rest)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    with pytest.raises(CorruptError):
        decode(data)


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_random_bodies_in_a_sound_envelope_are_refused(body):
    with pytest.raises(CorruptError):
        decode(envelope.seal(MAGIC, VERSION, body))


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_body_in_a_sound_envelope_is_refused_or_whole(data):
    """What the checksum lets pass never comes back in part: it can be written and read again."""
    body = bytearray(_body(full_state()))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        state = decode(envelope.seal(MAGIC, VERSION, bytes(body)))
    except REFUSED:
        return
    assert decode(encode(state)) == state


@given(st.data())
def test_a_shortened_or_lengthened_body_in_a_sound_envelope_is_refused(data):
    body = _body(full_state())
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(CorruptError):
        decode(envelope.seal(MAGIC, VERSION, body[:cut]))
    with pytest.raises(CorruptError):
        decode(envelope.seal(MAGIC, VERSION, body + data.draw(st.binary(min_size=1, max_size=5))))


@pytest.mark.parametrize(
    "field",
    [
        "source_offsets",
        "operator_states",
        "metadata",
        "operators",
        "key_kinds",
        "cells",
        "frontiers",
        "counts",
        "sinks",
        "tables",
    ],
)
def test_a_duplicate_name_is_refused_by_field_and_name(field):
    body = _listed(full_state())
    at = encoding._Body.__struct_fields__.index(field)
    body[at] = [*body[at], body[at][0]]
    with pytest.raises(CorruptError, match=rf"{field}: the name .*{body[at][0][0]!r}.* is there twice"):
        decode(_sealed(body))


@pytest.mark.parametrize(("at", "field"), [(1, "offsets"), (2, "commits"), (3, "files")])
def test_a_duplicate_name_in_sparks_log_is_refused(at, field):
    body = _listed(full_state())
    log = body[encoding._Body.__struct_fields__.index("spark")]
    log[at] = [*log[at], log[at][0]]
    with pytest.raises(CorruptError, match=rf"spark.{field}: the name {log[at][0][0]!r} is there twice"):
        decode(_sealed(body))


def test_a_duplicate_shard_is_refused():
    body = _listed(full_state())
    [slot] = body[encoding._Body.__struct_fields__.index("shards")]
    slot[1] = [*slot[1], slot[1][0]]
    with pytest.raises(CorruptError, match="a shard is there twice"):
        decode(_sealed(body))


@pytest.mark.parametrize("change", [[0, 0, [None, []]], [0, -1, None]])
def test_a_change_of_a_missing_page_is_refused(change):
    body = _listed(full_state())
    body[encoding._Body.__struct_fields__.index("shards")] = [[None, [change]]]
    with pytest.raises(CorruptError, match="a page that does not exist"):
        decode(_sealed(body))


FORMAT_9 = (
    "VElERVdDS1AJAAEAvwIAAM8BAAAAAAAAKLUv/WC/AS0OAEbcYz1Qa5sDIDPpmsR2LYWg2rfAt7tUAP79bafoxkGk/daKNm6RJhti"
    "dsVsLbP9SNSwbW13McBbLu3rLdR+spMMVgBUAFIAEd8Lm4YiEsVVOy8mMxjvH4Q6FHZSJwXnnWKpRLRY0VLhSjqtrgGZMBdBMi+L"
    "u4cPD8VS7t/r9++DE01VNgrbKhdDrQ7CAgg2ULAY8IEuJieY5RiAGQLQ9znQnoipnEiRjGzjGTpye7ohIfJcsV6JmrLNfzB77x3D"
    "l8PkxUg4qDDes5e9C40HvXsYcr64wHVyFTRiizuNe9mzNI0jskjiRbkXjCteFlCMJXFUZoP/DTSLiTq3dwHeUyzl3h+64/B4Xibt"
    "3jHGTo86HxkQAIf3qL87gqEOhaHOQ2QeASsaPhMawk9U7WUgxanOyQLFUq7CM+xGhg3h/ddZhhGB7Q4FklYRS5EACSStIpaor+Im"
    "iYg2V0omdnHeq7RY3EX9Df8dUUTT9PtDP3zX5Cwxa8mKg6vE4sV5qKnWsM4t80qL2kN4sEEmCPfuVGbrDxIANOT4RYSzkEi+G54w"
    "LreLaq3Ps/qiGDkKz0oJhHOJD26ocXgDYAxJNXMcCuGZ4ecw90DEWyYEahmP"
)
_BEFORE_9: dict = {"layout": "", "source_starts": {}}
_BEFORE_8: dict = {"tables": {}, **_BEFORE_9}
_BEFORE_5 = {"source_offsets": {"log": 8192, "topic": '{"t":{"0":5}}'}, "source_kinds": {}, "seen": ()}


@pytest.mark.parametrize(
    ("stored", "lacking"),
    [
        (FORMAT_4, {"sinks": {("files", ""): 2}, **_BEFORE_5}),
        (FORMAT_5, {"sinks": {("files", ""): 2}}),
    ],
)
def test_a_checkpoint_of_an_earlier_format_is_read_whole(stored, lacking):
    record = StateType("fields", fields=(Field("total", StateType("int")),))
    info = msgspec.structs.replace(full_state().operators["window"], values=(Field("", record),))
    expected = full_state().replace(operators={"window": info}, **lacking, **_BEFORE_8)
    assert decode(base64.b64decode(stored), "orders") == expected


@pytest.mark.parametrize(("stored", "lacking"), [(FORMAT_6, _BEFORE_8), (FORMAT_7, _BEFORE_8), (FORMAT_9, _BEFORE_9)])
def test_a_checkpoint_without_newer_fields_is_read_whole(stored, lacking):
    assert decode(base64.b64decode(stored), "orders") == full_state().replace(**lacking)


def test_a_checkpoint_with_a_table_in_one_part_is_read_whole():
    expected = full_state().replace(**_BEFORE_9)
    table = expected.tables["prices"]
    whole = msgspec.structs.replace(table, files=table.files[:1], later_parts=())
    assert decode(base64.b64decode(FORMAT_8), "orders") == expected.replace(tables={"prices": whole})


@pytest.mark.parametrize("begins", [(0,), (2,), (9,), (1, 1), (1, 2)])
def test_impossible_parts_of_a_table_are_refused(begins):
    body = _listed(full_state())
    body[encoding._Body.__struct_fields__.index("tables")][0][1][-1] = begins
    with pytest.raises(CorruptError, match="part"):
        decode(_sealed(body))


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: [*body, None]])
def test_a_body_that_lacks_a_field_or_has_one_more_is_refused(change):
    with pytest.raises(CorruptError):
        decode(_sealed(change(_listed(full_state()))))


def test_an_impossible_identity_in_a_sound_envelope_is_refused():
    body = _listed(full_state())
    body[1] = -1
    with pytest.raises(CorruptError, match="sequence"):
        decode(_sealed(body))


def test_a_newer_format_version_is_refused_with_both_versions():
    with pytest.raises(StateError, match=rf"version {VERSION + 1}.*reads up to {VERSION}"):
        decode(envelope.seal(MAGIC, VERSION + 1, b"whatever a later version has"))


def test_an_older_format_is_refused_with_both_versions_and_a_way_out():
    with pytest.raises(
        StateError, match=r"version 3, .*reads versions 4 to 10; commit once with the newest 0\.1, which converts it"
    ):
        decode(envelope.seal(MAGIC, 3, b"whatever an earlier version had"))


def test_another_streams_checkpoint_is_refused_with_both_names():
    with pytest.raises(StateError, match="'orders', not of 'payments'"):
        decode(encode(full_state()), "payments")


def test_errors_say_where():
    with pytest.raises(CorruptError, match=r"chain/7\.rec.*empty"):
        decode(b"", where="chain/7.rec")


@pytest.mark.parametrize(
    "changes",
    [
        {"event_count": 2**64},
        {"source_offsets": {"a": -(2**63) - 1}},
        {"metadata": {"a": "\ud800"}},
        {"metadata": {"a": object()}},
        {"counts": {1: 1, "a": 2}},
    ],
)
def test_values_that_cannot_be_encoded_are_refused(changes):
    with pytest.raises(StateError, match="checkpoint 2 of stream 'orders' cannot be written"):
        encode(full_state().replace(**changes))


def test_one_file_with_two_checksums_is_refused_when_encoding():
    one, two = (PartRef(FileRef("state/x", 1, checksum), 1, 1, 1) for checksum in (1, 2))
    with pytest.raises(StateError, match="'state/x' twice"):
        encode(Manifest(CheckpointId("s", 1), shards={0: ShardParts(None, (one, two))}))


def _body(state: Manifest) -> bytes:
    return envelope.unseal(MAGIC, VERSION, encode(state), "it")[1]


def _listed(state: Manifest) -> list:
    return msgspec.msgpack.decode(_body(state))


def _sealed(body: list) -> bytes:
    return envelope.seal(MAGIC, VERSION, msgspec.msgpack.encode(body))
