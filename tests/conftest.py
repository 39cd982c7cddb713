"""Fixtures for every test: real servers, started when a test first asks for one."""

from servers import etcd, seaweedfs  # noqa: F401
