"""Fixtures for every test: real servers, started when a test first asks for one."""

import os

from hypothesis import settings

from cell_places import etcd_3, mortal_place, mortal_seaweedfs, place  # noqa: F401
from java_archive import java_environment
from kafka_server import durable_kafka, kafka  # noqa: F401
from postgres_server import postgres  # noqa: F401
from servers import etcd, seaweedfs  # noqa: F401

os.environ.update(java_environment())

# How long an example takes depends on who else uses the machine; it is not what a property is about.
settings.register_profile("tidewheel", deadline=None)
settings.load_profile("tidewheel")
