"""A service refuses, hangs and recovers: no record is a dead letter, lost, or processed twice."""

from __future__ import annotations

import errno
import socket
import urllib.error
import uuid

import pyarrow as pa
import pytest

from tidewheel import Job, StatefulLogic, codecs, sinks, tumbling
from tidewheel._core.transient import is_transient
from tidewheel.codecs import PayloadCodec
from tidewheel.errors import ConnectorUnavailable, GraphError, Retry
from tidewheel.testing import MemoryRun


class Away(Exception):
    """An error of a client that nobody knows."""


class Service:
    """Answers, or raises what it is told to: a server that refuses, or one that hangs until the client gives up."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def ask(self, value):
        if self.error is not None:
            raise self.error
        return value


SERVICE = Service()


class Timed(StatefulLogic):
    def on_data(self, message, state, output):
        output.set_timer(message.time)
        return message.value["n"]

    def on_timer(self, timer, state, output):
        output.emit({"n": SERVICE.ask(state)})


class Registry(PayloadCodec):
    """A codec that needs a registry of schemas."""

    def decode(self, payload):
        return SERVICE.ask({"n": int(payload)})

    def encode(self, columns):
        SERVICE.ask(None)
        return codecs.json().encode(columns)


def asked(record):
    return {"n": SERVICE.ask(record["n"])}


def asked_with_state(key, record, state):
    return asked(record), record["n"]


def asked_by_logic(message, state, output):
    output.emit(asked(message.value))


def whole(batch):
    SERVICE.ask(None)
    return batch


def timed(records, number=""):
    return records.assign_timestamps(f"t{number}", "n", unit="ns").limit_out_of_orderness(
        f"b{number}", "1 ns", max_ahead=None
    )


def keyed(records, number=""):
    return records.key_by(f"by{number}", "n")


def pair(left, right):
    return asked(left)


STEPS = {
    "map": lambda s, retry: s.map("step", asked, retry=retry),
    "filter": lambda s, retry: s.filter("step", lambda r: SERVICE.ask(True), retry=retry),
    "filter_map": lambda s, retry: s.filter_map("step", asked, retry=retry),
    "flat_map": lambda s, retry: s.flat_map("step", lambda r: [asked(r)], retry=retry),
    "inspect": lambda s, retry: s.inspect("step", asked, retry=retry),
    "map_batches": lambda s, retry: s.map_batches("step", whole, retry=retry).map("n", lambda row: {"n": row.n}),
    "stateful_map": lambda s, retry: keyed(s).stateful_map("step", asked_with_state, default=0, retry=retry),
    "stateful_op": lambda s, retry: keyed(s).stateful_op("step", asked_by_logic, default=0, retry=retry),
    "on_timer": lambda s, retry: keyed(timed(s)).stateful_op("step", Timed(), default=0, retry=retry),
    "key_by": lambda s, retry: s.key_by("step", lambda r: SERVICE.ask(r["n"]), retry=retry),
    "decode": lambda s, retry: broken(s.map("text", lambda r: {"value": str(r["n"]).encode()}), retry),
}
OTHERS = {
    "split": lambda s: s.split("step", 1, lambda r: SERVICE.ask(0))[0],
    "assign_timestamps": lambda s: s.assign_timestamps("step", lambda r: SERVICE.ask(r["n"]), unit="ns"),
    "partition": lambda s: s.assign_timestamps("t", "n", unit="ns").limit_out_of_orderness(
        "step", "1 s", max_ahead=None, partition=lambda r: SERVICE.ask("one")
    ),
    "reduce": lambda s: s.key_by("by", lambda r: 0, value="n").reduce("step", lambda a, b: SERVICE.ask(a + b)),
    "ttl_map": lambda s: keyed(timed(s)).ttl_map("step", lambda message, entries: asked(message.value)),
    "deduplicate": lambda s: keyed(timed(s)).deduplicate("step", "1 ns", by=lambda r: SERVICE.ask(r["n"])),
    "window": lambda s: keyed(timed(s)).window(
        "step", tumbling("1 ns"), lambda a, r: a + SERVICE.ask(r["n"]), default=0
    ),
    "interval_join": lambda s: keyed(timed(s)).interval_join("step", keyed(timed(s, 2), 2), after="1 s", function=pair),
    "window_join": lambda s: keyed(timed(s)).window_join(
        "step", keyed(timed(s, 2), 2), tumbling("1 ns"), function=pair
    ),
    "as_of_join": lambda s: keyed(timed(s)).as_of_join("step", keyed(timed(s, 2), 2), function=pair),
}


def broken(payloads, retry):
    decoded = payloads.decode("step", Registry(), retry=retry)
    decoded.broken.sink("broken", sinks.collect())
    return decoded


@pytest.fixture(autouse=True)
def service():
    SERVICE.error = None
    yield
    SERVICE.error = None


def batch_and_flush(memory):
    memory.batch({"in": [11, 12]})
    memory.flush()


def run(build, error):
    """Run a batch while the service is there, two while it is away, and these again when it is back."""
    out, dead = sinks.collect(), sinks.collect()
    job = Job("away", state=f"memory:{uuid.uuid4().hex}", n_shards=4)
    job.dead_letter("dead", dead)
    build(job.source("in", lambda spark: None).map("record", lambda row: {"n": row.value})).sink("out", out)
    with MemoryRun(job) as memory:
        memory.batch({"in": [1, 2]})
        SERVICE.error = error
        for _ in range(2):
            with pytest.raises(Retry, match="step 'step'"):
                batch_and_flush(memory)
        SERVICE.error = None
        if memory.next_batch == 1:
            memory.batch({"in": [11, 12]})
        memory.flush()
    assert dead.records == []
    return out.records


@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError()], ids=["refuses", "hangs"])
@pytest.mark.parametrize("step", STEPS)
def test_an_unavailable_service_loses_no_record(step, error):
    records = run(lambda s: STEPS[step](s, ()), error)
    assert sorted(record["n"] for record in records) == [1, 2, 11, 12]


@pytest.mark.parametrize("step", OTHERS)
def test_an_unavailable_service_loses_no_record_in_other_steps(step):
    records = run(OTHERS[step], ConnectorUnavailable("away"))
    if step == "reduce":
        assert records[-1]["n"] == 26
    elif step == "window":
        assert sorted(record["value"] for record in records) == [1, 2, 11, 12]
    else:
        assert sorted(record["n"] for record in records) == [1, 2, 11, 12]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_declares_which_of_its_own_errors_are_transient(step):
    records = run(lambda s: STEPS[step](s, (Away,)), Away())
    assert sorted(record["n"] for record in records) == [1, 2, 11, 12]


def test_a_codec_of_a_sink_that_needs_a_service_costs_no_record(tmp_path):
    from tidewheel._connectors.messages import Form, MessagePartition
    from tidewheel._storage import open_store
    from tidewheel.connectors import Staging

    staging = Staging(open_store(f"file://{tmp_path}"), "job", "out", 1, "r-0-0")
    partition = MessagePartition(Form("topic", Registry(), ""), staging)
    SERVICE.error = TimeoutError()
    with pytest.raises(TimeoutError):
        partition.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    SERVICE.error = None
    partition.write(pa.RecordBatch.from_pylist([{"n": 1}]))
    assert partition.prepare() is not None


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (ConnectionResetError(), True),
        (BrokenPipeError(), True),
        (TimeoutError(), True),
        (OSError(errno.EHOSTUNREACH, "no route"), True),
        (socket.gaierror(socket.EAI_AGAIN, "later"), True),
        (urllib.error.URLError(ConnectionRefusedError()), True),
        (urllib.error.HTTPError("http://x", 503, "", {}, None), True),
        (ConnectorUnavailable(""), True),
        (Retry(), True),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (OSError(errno.ENOSPC, "full"), False),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), False),
        (urllib.error.HTTPError("http://x", 404, "", {}, None), False),
        (ValueError(), False),
    ],
    ids=str,
)
def test_errors_of_connections_are_transient_and_others_are_not(error, transient):
    assert is_transient(error) is transient


class Answer:
    def __init__(self, status: int) -> None:
        self.status_code = status


def httpx_error(status):
    """An error like the one of httpx, which the tests do without."""
    error = type("HTTPStatusError", (Exception,), {"__module__": "httpx"})()
    error.response = Answer(status)
    return error


def aiohttp_error(status):
    error = type("ClientResponseError", (Exception,), {"__module__": "aiohttp.client_exceptions"})()
    error.status = status
    return error


def requests_error(status):
    requests = pytest.importorskip("requests")
    return requests.exceptions.HTTPError("no", response=Answer(status) if status else None)


@pytest.mark.parametrize("raised", [httpx_error, aiohttp_error, requests_error])
def test_a_status_that_asks_to_try_again_is_transient_in_every_client(raised):
    assert is_transient(raised(503))
    assert is_transient(raised(429))
    assert not is_transient(raised(500))
    assert not is_transient(raised(404))


def test_an_error_without_an_answer_is_not_transient():
    assert not is_transient(requests_error(None))


def test_an_error_that_was_raised_from_a_transient_one_is_transient():
    wrapped = ValueError("no price")
    wrapped.__cause__ = TimeoutError()
    assert is_transient(wrapped)
    handled = ValueError("no price")
    handled.__context__ = TimeoutError()
    assert not is_transient(handled)


def test_retry_takes_classes_of_errors_only():
    job = Job("wrong", state="memory:wrong")
    with pytest.raises(GraphError, match="step 'm': retry= takes classes of errors"):
        job.source("in", lambda spark: None).map("m", lambda value: value, retry=("Away",))
