"""A marked secret is given wherever one can be given, and everything that can fail fails: the secret appears nowhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import traceback
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from servers.nats_server import running_nats
from servers.stores import free_ports, running_etcd
from tidewheel import Job, RunOptions, cells, sinks, sources
from tidewheel._cells.backends.etcd_client import Address
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._cli import app
from tidewheel._connectors.kafka.client import connection as kafka_connection
from tidewheel._connectors.mqtt.client import MqttConnection, mqtt_broker
from tidewheel._connectors.nats.client import NatsConnection, nats_server
from tidewheel._connectors.nats.log import NatsLogOpener
from tidewheel._connectors.postgres.connection import may_be_plain
from tidewheel._core.urls import Url
from tidewheel._storage import open_store
from tidewheel.cells import aio
from tidewheel.connectors import Publication, Staging
from tidewheel.errors import ConfigError, TidewheelError
from tidewheel.fleet import open_inbox
from tidewheel.fleet._inbox.stream import InboxSettings
from tidewheel.fleet._inbox.with_nats.inbox import NatsInbox
from tidewheel.fleet._nodes.node import NodeOptions

SECRET = "mArKeD5ecret"
ODD = [f"{SECRET}{each}{SECRET}" for each in "/,?#@%: "]
"""Passwords that were not percent-encoded as they should have been."""
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": SECRET,
}


@pytest.fixture(scope="module")
def closed():
    return free_ports(1)[0]


def staged(sink, tmp_path):
    """Publish a row."""
    store = open_store(str(tmp_path / "staged"))
    part = sink.open(Staging(store, "j", "out", 1, "run-0-0"))
    part.write(pa.RecordBatch.from_pydict({"id": [1]}))
    sink.publish(Publication(store, "j", "out", 1, (part.prepare(),), None))


async def unopened(url):
    await aio.open(url).reader("x", int)


def failures(port: int, tmp_path: Path):
    """Give everything that can be refused or can fail with nobody, or nobody sensible, at a port."""
    at = f"127.0.0.1:{port}"
    login = f"ada:{SECRET}@{at}"
    yield lambda: cells.open(f"etcd://{login}/app", timeout="0.2 s")
    yield lambda: asyncio.run(unopened(f"etcd://{login}/app"))
    yield lambda: NatsConnection(f"nats://{login}", timeout=0.2)
    yield lambda: NatsInbox(f"nats://{SECRET}@{at}/orders", 4, timeout=0.2)
    yield lambda: MqttConnection(f"mqtt://{login}", "x", timeout=0.2)
    yield lambda: open_store(f"s3://{SECRET}@bucket/prefix?endpoint=http://{at}")
    for odd in ODD:
        yield lambda odd=odd: open_store(f"s3://ada:{odd}@bucket/prefix?endpoint=http://{at}")
    for scheme in ("redis", "natss", "etcd", "mqtt", "nats", "s3"):
        url = f"{scheme}://ada:{SECRET}@{at}/app"
        yield lambda url=url: cells.open(url.replace("etcd", "etcdx"), timeout="0.2 s")
        yield lambda url=url: open_store(url)
        yield lambda url=url: open_inbox(url.replace("nats:", "nats2:"))
        yield lambda url=url: sources.nats(url.replace("nats:", "nats2:"), "s")
        yield lambda url=url: sources.mqtt(url.replace("mqtt:", "mqtt2:"), "a", buffer="b", client_id="x")
        yield lambda url=url: sinks.postgres(url, "t")
        yield lambda url=url: sinks.files(url)
        yield lambda url=url: sources.files(url, "json")
        yield lambda url=url: sinks.delta(url)
        yield lambda url=url: sinks.kafka(url, "t")
    for settings in (f"replicas={SECRET}", f"unknown={SECRET}", f"ca={at}"):
        yield lambda settings=settings: open_inbox(f"nats://ada:{SECRET}@{at}/orders?{settings}", 4)
    for settings in (
        f"poll_s={SECRET}",
        f"retry_s={SECRET}",
        f"secret_access_key={SECRET}",
        f"proxy_url=http://a:{SECRET}@{at}",
    ):
        yield lambda settings=settings: cells.open(f"s3://bucket/prefix?{settings}", timeout="0.2 s")
        yield lambda settings=settings: open_store(f"s3://bucket/prefix?{settings}")
    yield lambda: sinks.postgres(f"postgresql://ada:{SECRET}@{at}/x", "t")
    yield lambda: sinks.postgres(f"host=127.0.0.1 port={port} password={SECRET}", "t")
    for odd in ("/", "?", "#", "@"):
        yield lambda odd=odd: sinks.postgres(f"postgresql://ada:{odd}{SECRET}@{at}/x", "t")
        yield lambda odd=odd: sinks.postgres(f"postgresql://ada:1{odd}{SECRET}@{at}/x", "t")
    yield lambda: sinks.postgres(
        f"host=127.0.0.1 port={port} user=ada", "t", password_env="MARKED", patience="0.1 s"
    ).start("j")
    yield lambda: sinks.kafka(at, "t", options=SASL, timeout="0.5 s").start("j")
    yield lambda: sinks.kafka(f"ada:{SECRET}@{at}", "t")
    yield lambda: sinks.kafka(at, "t", options={**SASL, "no.such.option": "1"}).start("j")
    yield lambda: sources.kafka(at, "t", options=SASL, timeout="0.5 s").opener().start()
    for sink in (
        sinks.nats(f"nats://ada:{SECRET}@{at}", "a", timeout="0.2 s", patience="0.1 s"),
        sinks.mqtt(f"mqtt://ada:{SECRET}@{at}", "a", timeout="0.2 s", patience="0.1 s"),
    ):
        yield lambda sink=sink: sink.start("j")
        yield lambda sink=sink: staged(sink, tmp_path)
    yield lambda: sources.nats(f"nats://ada:{SECRET}@{at}", "s", timeout="0.1 s").opener()


@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize("where", ["closed", "rude"])
def test_no_error_shows_a_secret(where, request, tmp_path, monkeypatch, caplog, capfd):
    port = request.getfixturevalue(where)
    monkeypatch.setenv("MARKED", SECRET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    caplog.set_level(logging.DEBUG)
    failed = 0
    for failing in failures(port, tmp_path):
        with pytest.raises(TidewheelError) as raised:
            failing()
        failed += 1
        text = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
        assert SECRET not in text, text
    assert failed > 70
    gc.collect()
    assert SECRET not in caplog.text
    streams = capfd.readouterr()
    assert SECRET not in streams.out + streams.err


@pytest.mark.parametrize("password", ODD)
def test_a_wrongly_encoded_password_is_not_shown(password):
    for scheme, read in (("etcd", Address.parse), ("nats", nats_server), ("mqtt", mqtt_broker)):
        url = f"{scheme}://ada:{password}@host:1"
        try:
            server = read(url)
            assert server.password == unquote(password)
            text = repr(server) + server.shown
        except TidewheelError as error:
            text = "".join(traceback.format_exception(error))
        assert SECRET not in text + repr(Url(url))


def test_servers_that_refuse_a_password_do_not_make_us_show_it(tmp_path, capfd):
    with running_nats(tmp_path / "nats", user="ada:other") as nats, running_etcd(tmp_path) as etcd:
        etcd.require_password("ada", "other")
        for failing in (
            lambda: NatsConnection(f"nats://ada:{SECRET}@127.0.0.1:{nats.port}"),
            lambda: open_inbox(f"nats://{SECRET}@127.0.0.1:{nats.port}/x", 1),
            lambda: cells.open(f"etcd://ada:{SECRET}@{etcd.hosts}/app"),
        ):
            with pytest.raises(TidewheelError, match="refuses the user") as raised:
                failing()
            assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert SECRET not in "".join(capfd.readouterr())


def test_no_repr_shows_a_secret(tmp_path):
    url = f"nats://ada:{SECRET}@host:4222"
    source = sources.nats(url, "s")
    broker = f"mqtt://ada:{SECRET}@host"
    shown = [
        Url(url),
        nats_server(url),
        mqtt_broker(broker),
        Address.parse(f"etcd://ada:{SECRET}@host"),
        NodeOptions("a", f"etcd://ada:{SECRET}@h/p", f"{url}/x"),
        JobPlace("j", "memory:x", f"etcd://ada:{SECRET}@h/p"),
        InboxSettings(Url(f"{url}/x"), None, {}, None, 1, "raw"),
        NatsLogOpener(Url(url), "s", (), "earliest", "fail", None, 1.0),
        kafka_connection("h:1", SASL, "1 s"),
        aio.open(f"etcd://ada:{SECRET}@h/p")._url,
        source,
        sources.mqtt(broker, "a", buffer=f"{url}/b", client_id="x").bridging,
        sources.kafka("h:1", "t", options=SASL).topics,
        sources.inbox(f"{url}/x"),
        sinks.nats(url, "a"),
        sinks.mqtt(broker, "a"),
        sinks.kafka("h:1", "t", options=SASL).target,
    ]
    for each in shown:
        described = each.describe() if hasattr(each, "describe") else ""
        assert SECRET not in repr(each) + str(each) + described


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "abfss", "https"])
def test_a_source_of_files_refuses_a_url_with_a_password(scheme):
    with pytest.raises(ConfigError, match="has a user or password") as refused:
        sources.files(f"{scheme}://ada:{SECRET}@bucket/in", "json", schema="a string")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("dsn", "environment", "warned"),
    [
        ("host=db.example user=ada", {}, True),
        ("postgresql://ada@10.0.0.7/x", {}, True),
        ("user=ada", {"PGHOST": "db.example"}, True),
        ("host=127.0.0.1,db.example", {}, True),
        ("host=db.example sslmode=verify-full", {}, False),
        ("host=db.example", {"PGSSLMODE": "require"}, False),
        ("host=127.0.0.1", {}, False),
        ("host=/run/postgresql", {}, False),
        ("user=ada", {}, False),
        ("service=mine", {}, False),
    ],
)
def test_postgres_at_another_machine_without_sslmode_is_warned_of(dsn, environment, warned):
    from psycopg.conninfo import conninfo_to_dict

    assert may_be_plain(conninfo_to_dict(dsn), environment) == warned


def test_no_command_shows_a_secret(closed):
    for command in (
        ["cells", "get", "x", "--at", f"redis://ada:{SECRET}@h/x"],
        ["cells", "get", "x", "--at", f"etcd://ada:{SECRET}/{SECRET}@h/x"],
        ["checkpoints", "list", "j", "--state", f"etcd://ada:{SECRET}@h/x"],
        ["fleet", "status", "j", "--cells", f"redis://ada:{SECRET}@h/x", "--state", "memory:x"],
    ):
        ended = CliRunner().invoke(app, command)
        assert ended.exit_code != 0
        text = ended.output + "".join(traceback.format_exception(ended.exception)) if ended.exception else ended.output
        assert SECRET not in text, text


def test_a_run_on_spark_shows_a_secret_nowhere(spark, tmp_path):
    with running_nats(tmp_path / "nats", user=f"ada:{SECRET}") as nats:
        nats.make_stream("orders")
        nats.make_stream("out", "out.>", allow_atomic=True)
        nats.send("orders.a", [b'{"n": 1}', b'{"n": 2}'])
        job = Job("secrets", state=str(tmp_path / "state"), n_shards=2)
        numbers = job.source("orders", sources.nats(nats.server, "orders")).map(
            "data", lambda row: {"n": len(row.data)}
        )
        numbers.sink("out", sinks.nats(nats.server, "out.{n}"))
        job.run(until="end", options=RunOptions(spark=spark, local=str(tmp_path / "local")))
        assert len(nats.messages("out", "out.8")) == 2
        assert SECRET not in repr(job) + str(job.plan())
        assert spark.sparkContext._jvm is not None
        settings = dict(spark.sparkContext.getConf().getAll()) | dict(spark.sparkContext._jvm.System.getProperties())
        assert SECRET not in str(settings)
        assert SECRET not in str([row.asDict() for row in spark.sql("SET -v").collect()])
        assert SECRET not in str(dict(spark.sparkContext._jvm.System.getenv()))
        assert not _processes_with(SECRET)
        for folder in ("state", "local"):
            holding = [
                path
                for path in (tmp_path / folder).rglob("*")
                if path.is_file() and SECRET.encode() in path.read_bytes()
            ]
            assert not holding


def _processes_with(text: str) -> list[str]:
    """Return the command lines, as `ps` shows them, that have a text in them."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if text in line]
