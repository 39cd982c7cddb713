"""Fixtures for every test: real servers, started when a test first asks for one."""

import os

import pytest
from hypothesis import settings

from servers.java_archive import java_environment
from servers.kafka_server import durable_kafka, kafka  # noqa: F401
from servers.postgres_server import postgres  # noqa: F401
from servers.stores import etcd, seaweedfs  # noqa: F401
from support.cell_places import etcd_3, mortal_place, mortal_seaweedfs, place  # noqa: F401

os.environ.update(java_environment())

# How long an example takes depends on who else uses the machine; it is not what a property is about.
settings.register_profile("tidewheel", deadline=None)
settings.load_profile("tidewheel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--connect", action="store_true", help="give tests a session of a Spark Connect server")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--connect"):
        # Fixtures of a plugin that comes last replace those of the same name.
        config.pluginmanager.import_plugin("servers.on_connect")
