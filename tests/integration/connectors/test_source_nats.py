"""nats: the sequences of a JetStream stream are offsets."""

from __future__ import annotations

import traceback
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from servers.nats_server import Nats, nats, running_nats  # noqa: F401
from tidewheel import sources
from tidewheel._connectors.nats.client import NatsConnection
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable
from tidewheel.testing.connectors import DrivenSource, SourceConformance, SourceHarness

USER = "ada:vErY-sEcReT"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a password, which tests of this file may kill."""
    with running_nats(tmp_path_factory.mktemp("nats"), user=USER) as server:
        yield server


class Stream(SourceHarness):
    secrets = (USER.partition(":")[2],)

    def __init__(self, server: Nats, **settings) -> None:
        self.server, self.name, self.settings = server, f"s-{uuid.uuid4().hex}", settings
        server.make_stream(self.name)

    def source(self, *, max_records=None):
        return sources.nats(self.server.server, self.name, max_records=max_records, timeout="4 s", **self.settings)

    def append(self, payloads):
        self.server.send(f"{self.name}.a", payloads)

    def payload(self, row):
        return bytes(row["data"])

    def stop_server(self):
        self.server.kill()

    def start_server(self):
        self.server.start()


class TestAStream(SourceConformance):
    @pytest.fixture
    def harness(self, guarded):
        return Stream(guarded)


@pytest.fixture
def stream(nats):  # noqa: F811
    return Stream(nats)


def read(source, start=None):
    """Return the rows of all there is."""
    reader = source.reader()
    start = start or reader.start()
    end = reader.end(start)
    rows = [row for part in reader.splits(start, end, 4) for batch in part.read() for row in batch.to_pylist()]
    reader.close()
    return rows


def settled(stream, **settings):
    return sources.nats(stream.server.server, stream.name, **settings)


def numbers(rows):
    return [int(row["data"]) for row in rows]


def test_a_row_has_subject_sequence_time_headers_and_data(stream):
    before = datetime.now(UTC) - timedelta(seconds=1)
    stream.server.send(f"{stream.name}.b.c", [b"1"], headers={"kind": "first", "of": "two"})
    stream.append([b"2"])
    one, other = read(settled(stream))
    assert one.pop("time") > before
    assert one == {
        "subject": f"{stream.name}.b.c",
        "sequence": 1,
        "headers": [("kind", "first"), ("of", "two")],
        "data": b"1",
    }
    assert (other["subject"], other["headers"], other["data"]) == (f"{stream.name}.a", [], b"2")


def test_some_subjects_and_a_range_read_by_several_tasks(stream):
    for number in range(12):
        stream.server.send(f"{stream.name}.{'abc'[number % 3]}.x", [b"%d" % number])
    for tasks in (1, 3, 8):
        source = settled(stream, subjects=[f"{stream.name}.a.*", f"{stream.name}.c.>"], tasks=tasks)
        assert numbers(read(source)) == [n for n in range(12) if n % 3 != 1]
    assert numbers(read(settled(stream, subjects=f"{stream.name}.b.x"))) == list(range(1, 12, 3))
    assert read(settled(stream, subjects=f"{stream.name}.d.x")) == []


def test_where_a_job_begins(stream):
    stream.append([b"1", b"2"])
    between = read(settled(stream))[1]["time"] + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    stream.append([b"3", b"4"])
    assert numbers(read(settled(stream))) == [1, 2, 3, 4]
    assert numbers(read(settled(stream, start=2))) == [2, 3, 4]
    assert numbers(read(settled(stream, start=between))) == [3, 4]
    assert numbers(read(settled(stream, start=datetime(2100, 1, 1, tzinfo=UTC)))) == []
    latest = settled(stream, start="latest").reader()
    start = latest.start()
    latest.close()
    stream.append([b"5"])
    assert numbers(read(settled(stream, start="latest"), start)) == [5]


def test_messages_that_were_deleted_one_by_one_are_not_missed(stream):
    stream.append([b"%d" % n for n in range(1, 11)])
    with NatsConnection(stream.server.server) as connection:
        for sequence in (4, 5, 10):
            connection.call(connection.jetstream.delete_msg(stream.name, sequence))
    assert numbers(read(settled(stream, tasks=4))) == [1, 2, 3, 6, 7, 8, 9]


def test_more_messages_than_one_fetch_has(stream, monkeypatch):
    monkeypatch.setattr("tidewheel._connectors.nats.log._FETCH", 50)
    stream.append([b"%d" % n for n in range(120)])
    assert numbers(read(settled(stream, tasks=1))) == list(range(120))


def test_records_deleted_before_they_were_read_fail_with_both_numbers(stream):
    stream.append([b"%d" % n for n in range(1, 11)])
    with NatsConnection(stream.server.server) as connection:
        connection.call(connection.jetstream.purge_stream(stream.name, seq=6))
    strict = DrivenSource(stream)
    with pytest.raises(ConnectorError, match=r"begins at sequence 6, and the job continues at 3.*lost='earliest'"):
        strict.end({stream.name: 3})
    with pytest.raises(ConnectorError, match="begins at sequence 6, and the job continues at 3"):
        strict.read({stream.name: 3}, {stream.name: 11})
    assert numbers(read(settled(stream, lost="earliest"), {stream.name: 3})) == [6, 7, 8, 9, 10]
    assert numbers(read(settled(stream, start=2, lost="earliest"))) == [6, 7, 8, 9, 10]
    with pytest.raises(ConnectorError, match="continues at 2"):
        read(settled(stream, start=2))


def test_another_stream_of_the_same_name_is_refused(stream):
    stream.append([b"1"])
    with pytest.raises(ConnectorError, match="ends at sequence 1, and the job has read up to 7"):
        DrivenSource(stream).end({stream.name: 8})


def test_missing_and_invalid_settings_are_reported(stream, guarded):
    with pytest.raises(ConfigError, match=rf"no stream 'nowhere' at nats://127.0.0.1:\d+: it has .*{stream.name}"):
        read(sources.nats(stream.server.server, "nowhere"))
    with pytest.raises(ConnectorUnavailable, match=r"nats://127.0.0.1:1 does not answer"):
        read(sources.nats(f"nats://{USER}@127.0.0.1:1", "s", timeout="0.2 s"))
    wrong = guarded.server.replace("sEcReT", "wrong")
    with pytest.raises(ConnectorError, match="refuses the user") as refused:
        read(sources.nats(wrong, "s"))
    assert "vErY" not in "".join(traceback.format_exception(refused.value))
    queue = f"q-{uuid.uuid4().hex}"
    stream.server.make_stream(queue, retention="workqueue")
    with pytest.raises(ConfigError, match="retention policy workqueue"):
        read(sources.nats(stream.server.server, queue))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "http://x"}, "must name a NATS server"),
        ({"stream": "a.b"}, "cannot name a stream"),
        ({"start": "first"}, "earliest or latest"),
        ({"start": 0}, "begin at 1"),
        ({"start": datetime(2026, 1, 1)}, "has no zone"),
        ({"lost": "ignore"}, "fail or earliest"),
        ({"tasks": 0}, "at least 1"),
        ({"max_records": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work(settings, said):
    with pytest.raises(ConfigError, match=said):
        sources.nats(**{"url": "nats://localhost", "stream": "s", **settings})
