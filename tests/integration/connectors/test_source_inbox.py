"""inbox: positions by shard are offsets; the same range gives the same events."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import shutil
import uuid
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from servers.nats_server import nats  # noqa: F401
from support.memory_inbox import block
from tidewheel._cli import app
from tidewheel._core.keys import shard_of
from tidewheel._values import shape_of
from tidewheel.errors import ConfigError
from tidewheel.fleet import InboxError, Router, UnreadableEvent, open_inbox
from tidewheel.fleet._inbox import Block
from tidewheel.fleet._inbox.dead_letters import letter
from tidewheel.fleet._inbox.stream import InboxReader, InboxSettings
from tidewheel.sources import inbox
from tidewheel.testing.connectors import SourceConformance, SourceHarness


@dataclass
class Click:
    user: str
    amount: int | None


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/inbox"


def fill(url, numbers, n_shards=4):
    with open_inbox(url, n_shards) as opened, Router(opened) as router:
        for number in numbers:
            router.route(f"u{number % 5}", {"user": f"u{number % 5}", "amount": number, "more": [1]})
            if number % 10 == 9:
                router.flush()


class Inbox(SourceHarness):
    exact_limit = False

    def __init__(self, url):
        self.url = url
        open_inbox(url, 4).close()

    def source(self, *, max_records=None):
        return inbox(self.url, max_events=max_records)

    def append(self, payloads):
        with open_inbox(self.url, 4) as opened, Router(opened) as router:
            for number, payload in enumerate(payloads):
                router.route(number, {"text": payload.decode()})
                if number % 5 == 4:
                    router.flush()

    def payload(self, row):
        return json.loads(row["value"])["text"].encode()


class TestAnInbox(SourceConformance):
    @pytest.fixture
    def harness(self, url, spark):
        # Spark parses the schema of its columns.
        return Inbox(url)


CLICKS = pa.schema([("user", pa.string()), ("amount", pa.int64())])
RAW = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("shard", pa.int32()),
        ("position", pa.int64()),
        ("producer", pa.string()),
        ("number", pa.int64()),
    ]
)


def reader(url, schema=CLICKS, payload="columns", **settings):
    values = {"shards": None, "start": {}, "max_events": None, "partitions": 2, "payload": payload, **settings}
    return InboxReader(InboxSettings(url, **values), schema)


def rows(source, start, end):
    parts = pickle.loads(pickle.dumps(source.splits(start, end, 4)))
    return [row for part in parts for batch in part.read() for row in batch.to_pylist()]


def test_a_job_s_batches_have_each_event_once_and_a_replay_the_same(reading, url):
    fill(url, range(50))
    source = inbox(url, max_events=30).declared(shape_of(Click))
    batches = reading.run(source)
    assert len(batches) > 1
    assert all(len(batch) <= 30 for batch in batches)
    found = [row["amount"] for batch in batches for row in batch]
    assert sorted(found) == list(range(50))
    for user in range(5):
        assert [n for n in found if n % 5 == user] == list(range(user, 50, 5)), "a key's events come in their order"
    last = len(batches) - 1
    reading.forget_commit(last)
    before = reading.batches.pop(last)
    fill(url, range(50, 60))
    again = [row["amount"] for batch in reading.run(source) for row in batch]
    assert sorted(again) == sorted([*(row["amount"] for row in before), *range(50, 60)])


def test_an_inbox_at_nats_is_read_by_tasks_too(reading, nats):  # noqa: F811
    fill(nats.url("source"), range(20))
    (batch,) = reading.run(inbox(nats.url("source")))
    assert sorted(row["number"] for row in batch if row["key"] == "u1") == sorted(
        row["number"] for row in batch if row["value"].startswith('{"user":"u1"')
    )
    assert {row["value"] for row in batch} == {
        f'{{"user":"u{number % 5}","amount":{number},"more":[1]}}' for number in range(20)
    }


def test_some_shards_from_a_position(url):
    fill(url, range(20))
    mine = [shard_of("u1", 4)]
    everything = reader(url)
    first = everything.end(everything.start())
    fill(url, range(20, 40))
    source = reader(url, shards=mine, start={mine[0]: first[str(mine[0])]})
    start = source.start()
    end = source.end(start)
    assert start.keys() == end.keys() == {str(mine[0]), "#id"}
    expected = [n for n in range(20, 40) if shard_of(f"u{n % 5}", 4) in mine]
    assert [row["amount"] for row in rows(source, start, end)] == expected
    assert source.splits(end, end, 4) == []


@pytest.mark.parametrize("at", ["file", "nats"])
def test_an_inbox_that_was_made_again_is_refused_however_long_it_is(at, url, nats, tmp_path):  # noqa: F811
    place = url if at == "file" else nats.url("made-again")
    fill(place, range(20))
    source = reader(place)
    start = source.start()
    end = source.end(start)
    if at == "file":
        shutil.rmtree(url.removeprefix("file://"))
    else:
        asyncio.run(_removed(place))
    fill(place, range(100))
    again = reader(place)
    with pytest.raises(InboxError, match=r"the identity (\d+), and .* has (?!\1)\d+: it was removed and made again"):
        again.end(end)
    # A batch that is read again is planned by nobody.
    with pytest.raises(InboxError, match="it was removed and made again"):
        rows(reader(place), start, end)


async def _removed(place: str) -> None:
    import nats as client

    server, _, name = place.rpartition("/")
    connected = await client.connect(server)
    await connected.jetstream().delete_stream(name)
    await connected.close()


def test_a_limit_ends_a_batch_between_blocks_and_always_moves_on(url):
    fill(url, range(100))
    source = reader(url, max_events=7)
    start, found = source.start(), []
    while (end := source.end(start)) != start:
        found += rows(source, start, end)
        start = end
    assert sorted(row["amount"] for row in found) == list(range(100))


def test_available_now_ends_with_the_existing_records(url):
    fill(url, range(10))
    source = reader(url)
    source.freeze()
    fill(url, range(10, 20))
    start = source.start()
    end = source.end(start)
    assert len(rows(source, start, end)) == 10
    assert source.end(end) == end


def test_without_a_schema_keys_and_payloads_come_as_they_are(url):
    with open_inbox(url, 4) as opened, Router(opened, "p") as router:
        router.route(("a", 1), {"x": None})
    source = reader(url, RAW, "raw")
    start = source.start()
    (row,) = rows(source, start, source.end(start))
    position = row.pop("position")
    shard = shard_of(("a", 1), 4)
    assert row == {"key": '["a",1]', "value": '{"x":null}', "shard": shard, "producer": "p", "number": 1}
    assert start[str(shard)] <= position


def test_plain_payloads_line_breaks_and_missing_fields(url):
    with open_inbox(url, 1) as opened, Router(opened) as router:
        router.route_many(enumerate((1, b"2 \n", 3)))
    source = reader(url, pa.schema([("value", pa.int64())]), "plain")
    end = source.end(source.start())
    assert [row["value"] for row in rows(source, source.start(), end)] == [1, 2, 3]
    with open_inbox(url, 1) as opened, Router(opened) as router:
        router.route("k", {"other": 1})
    source = reader(url, start={0: end["0"]})
    start = source.start()
    assert rows(source, start, source.end(start)) == [{"user": None, "amount": None}]


BAD = {
    "text for a number": b'{"user":"bob","amount":"2"}',
    "a fraction for a whole number": b'{"user":"bob","amount":2.5}',
    "a field twice": b'{"user":"bob","amount":2,"amount":3}',
    "text that is not UTF-8": b'{"user":"b\xff\xfe","amount":2}',
    "half of a character": b'{"user":"\\ud800","amount":2}',
    "not JSON": b"nothing",
    "a list": b"[1]",
    "two objects": b'{"user":"a"} {"user":"b"}',
    "nothing": b"",
}


def with_a_bad_one(url, bad):
    with open_inbox(url, 1) as opened, Router(opened, "sensor") as router:
        for payload in (b'{"user":"a","amount":1}', bad, b'{"user":"c","amount":3}'):
            router.route("k", payload)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_event_stops_the_job_and_the_error_says_how_to_skip_it(url, bad):
    with_a_bad_one(url, bad)
    source = reader(url)
    start = source.start()
    end = source.end(start)
    with pytest.raises(
        UnreadableEvent, match=r"event 2 of producer 'sensor' for shard 0.*cannot be read as user, amount"
    ) as stopped:
        rows(source, start, end)
    command = re.search(r"`tidewheel (fleet skip [^`]*)`", str(stopped.value))[1].split()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert [row["amount"] for row in rows(source, start, end)] == [1, 3]
    assert [row["amount"] for row in rows(reader(url), start, end)] == [1, 3]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_event_goes_to_the_dead_letters_once_and_the_job_continues(url, bad):
    with_a_bad_one(url, bad)
    source = reader(url, dead_letters=f"{url}-dead")
    start = source.start()
    end = source.end(start)
    for _ in range(2):
        assert [row["amount"] for row in rows(source, start, end)] == [1, 3]
    letters = reader(f"{url}-dead", RAW, "raw")
    first = letters.start()
    (found,) = rows(letters, first, letters.end(first))
    value = msgspec.json.decode(found["value"])
    assert (found["key"], value["payload"]) == ("k", bad.decode(errors="replace"))
    assert (value["shard"], value["producer"], value["number"]) == (0, "sensor", 2)
    assert value["error"]


def with_a_forged_block(url):
    """Fill an inbox with two events and a block between them that says more than it has, as only a stranger would."""
    with open_inbox(url, 1) as opened:
        opened.append("sensor", "s", [block(0, 1, b'{"user":"a","amount":1}')])
        opened.append("stranger", "s", [Block(0, 7, 60_000_000, b"no block at all")])
        opened.append("sensor", "s", [block(0, 2, b'{"user":"c","amount":3}')])


def test_a_block_that_is_none_stops_the_job_until_it_is_skipped(url):
    with_a_forged_block(url)
    source = reader(url)
    start = source.start()
    end = source.end(start)
    with pytest.raises(UnreadableEvent, match=r"event 7 of producer 'stranger' .* does not decode") as stopped:
        rows(source, start, end)
    command = re.search(r"`tidewheel (fleet skip [^`]*)`", str(stopped.value))[1].split()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert [row["amount"] for row in rows(source, start, end)] == [1, 3]
    assert [row["number"] for row in rows(reader(url, RAW, "raw"), start, end)] == [1, 2]


def test_a_block_that_is_none_goes_to_the_dead_letters(url):
    with_a_forged_block(url)
    source = reader(url, dead_letters=f"{url}-dead")
    start = source.start()
    assert [r["amount"] for r in rows(source, start, source.end(start))] == [1, 3]
    letters = reader(f"{url}-dead", RAW, "raw")
    first = letters.start()
    (found,) = rows(letters, first, letters.end(first))
    assert msgspec.json.decode(found["value"])["payload"] == "no block at all"


def test_dead_letters_that_are_larger_than_their_inbox_takes_are_cut(url, nats):  # noqa: F811
    """A payload grows as JSON within JSON, and the inbox of the letters may take less than the job's."""
    bad = b'{"user":"' + b'\\u0001"' * 40_000 + b'","amount":true}'
    with_a_bad_one(url, bad)
    source = reader(url, dead_letters=nats.url(f"t-{uuid.uuid4().hex}"))
    start = source.start()
    end = source.end(start)
    for _ in range(2):
        assert [row["amount"] for row in rows(source, start, end)] == [1, 3]
    letters = reader(source.settings.dead_letters, RAW, "raw")
    first = letters.start()
    (found,) = rows(letters, first, letters.end(first))
    value = msgspec.json.decode(found["value"])
    assert value["payload_bytes"] == len(bad)
    assert bad.decode().startswith(value["payload"])


@given(st.binary(max_size=3_000), st.text(max_size=50), st.integers(300, 2_000))
def test_a_dead_letter_is_never_larger_than_its_limit(payload, error, limit):
    made = letter(payload, error, {"offset": 3}, limit)
    fields = msgspec.json.decode(made)
    assert len(made) <= limit or not fields["payload"]
    assert payload.decode(errors="replace").startswith(fields["payload"])
    assert fields["payload"] == payload.decode(errors="replace") or fields["payload_bytes"] == len(payload)


def test_a_skipped_event_that_can_be_read_is_read(url):
    fill(url, range(10), 1)
    with open_inbox(url) as opened:
        for stored in opened.read(opened.start(), opened.end([0])):
            opened.skip(0, stored.position, 1)
    source = reader(url)
    start = source.start()
    assert len(rows(source, start, source.end(start))) == 10


@pytest.mark.parametrize("kind", ["file", "nats"])
def test_an_inbox_shorter_than_the_position_is_refused_with_both_numbers(url, nats, kind):  # noqa: F811
    if kind == "nats":
        url = nats.url(f"t-{uuid.uuid4().hex}")
    fill(url, range(40), 1)
    with open_inbox(url) as opened:
        end = opened.end([0])[0]
    source = reader(url)
    with pytest.raises(InboxError, match=f"ends at position {end} for shard 0, and this job has read up to {end + 1}"):
        source.end({"0": end + 1})


def test_settings_that_cannot_work_are_refused(url):
    for settings in ({"max_events": 0}, {"partitions": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            inbox(url, **settings)
    fill(url, [])
    with pytest.raises(ConfigError, match="cannot be read for shard 7"):
        reader(url, shards=[7]).start()
    with pytest.raises(ConfigError, match="there is no inbox"):
        reader(url + "x").start()


def test_a_password_in_the_url_is_in_no_message():
    source = inbox("nats://ada:hidden@127.0.0.1:4222/clicks")
    assert "hidden" not in source.describe()
    assert "hidden" not in repr(source.open())
