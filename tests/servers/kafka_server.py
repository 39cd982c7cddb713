"""The Kafka of the tests: Apache Kafka, or Tansu if there is no `mvn` to install Apache Kafka.

Tests that Tansu cannot pass are skipped on it. TIDEWHEEL_TEST_KAFKA=tansu forces Tansu.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from servers.apache_kafka import ApacheKafka, ready_made
from servers.kafka_jars import NoMavenError, broker_jars, connector_jars, registry_archive
from servers.tansu import Tansu, tansu_in_a_bucket

Kafka = ApacheKafka | Tansu

Server = TypeVar("Server", ApacheKafka, Tansu)


@functools.cache
def is_real() -> bool:
    """Tell whether the broker is Apache Kafka; if it is not, say why, once, in one line."""
    try:
        why = "TIDEWHEEL_TEST_KAFKA says so" if os.environ.get("TIDEWHEEL_TEST_KAFKA") == "tansu" else ""
        if not why:
            broker_jars()
    except NoMavenError as lacking:
        why = str(lacking)
    if why:
        print(f"Kafka is Tansu here, and tests of what it cannot do are skipped: {why}", file=sys.stderr)
    return not why


def prepare() -> None:
    """Bring what the tests of Kafka need, before they run."""
    if is_real():
        ready_made()
        connector_jars()
        registry_archive()


@contextlib.contextmanager
def running_kafka(folder: Path, asks_for_password: bool = False) -> Iterator[Kafka]:
    """Run a broker for a while; what it holds is gone with it. One that asks for a password knows nobody."""
    if is_real():
        with running(ApacheKafka(folder, users={} if asks_for_password else None)) as server:
            yield server
    else:
        with running(Tansu(folder, asks_for_password=asks_for_password)) as server:
            yield server


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Run a server for a while."""
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Kafka]:
    """One broker for the whole session; keep apart by topic, and do not kill it."""
    _say_what_it_is(pytestconfig)
    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def real_kafka(kafka: Kafka) -> ApacheKafka:
    """Apache Kafka, for tests of what no other broker has."""
    if not isinstance(kafka, ApacheKafka):
        pytest.skip("the broker is not Apache Kafka")
    return kafka


@pytest.fixture
def durable_kafka(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker of the test's own, to be killed and started again."""
    _say_what_it_is(request.config)
    if is_real():
        # A broker that was killed is let in again when its last life counts as over.
        server: Kafka = ApacheKafka(tmp_path / "kafka", settings={"broker.session.timeout.ms": 2000})
    else:
        server = tansu_in_a_bucket(tmp_path / "kafka", request.getfixturevalue("seaweedfs"))
    with running(server):
        yield server


def _say_what_it_is(config: pytest.Config) -> None:
    """Let what `is_real` says be seen, whatever becomes of the test that asked first."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        is_real()
