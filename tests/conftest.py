"""Fixtures for every test: real servers, started when a test first asks for one."""

from cell_places import etcd_3, mortal_place, mortal_seaweedfs, place  # noqa: F401
from servers import etcd, seaweedfs  # noqa: F401
from spark_session import spark  # noqa: F401
