"""What opening cells refuses, each with its own message; and details of connections."""

from __future__ import annotations

import gc
import uuid

import pytest

from servers.stores import free_ports
from tidewheel import cells
from tidewheel._cells import record as records
from tidewheel.errors import ConfigError


def test_an_unknown_scheme():
    with pytest.raises(ConfigError, match=r"unknown scheme 'redis'; cells can be at: memory, file, s3, .*, etcd"):
        cells.open("redis://host")


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    port = free_ports(1)[0]
    for url in (f"etcd://127.0.0.1:{port}/x", f"s3://bucket/x?endpoint=http://127.0.0.1:{port}&retry_s=0.1"):
        with pytest.raises(cells.Offline, match="does not answer"):
            cells.open(url, timeout="0.1 s")


def test_unreferenced_cells_are_forgotten():
    with cells.open("memory:") as connection:
        for _ in range(100):
            connection.reader("x", int)
        gc.collect()
        assert len(connection._observed()) == 0


def test_private_memory_is_private_and_named_memory_is_shared():
    name = uuid.uuid4().hex
    with cells.open("memory:") as one, cells.open("memory:") as two:
        one.writer("x", int).write(1)
        assert two.reader("x", int).is_empty()
    with cells.open(f"memory:{name}") as one, cells.open(f"memory:{name}") as two:
        one.writer("x", int).write(1)
        assert two.reader("x", int).read() == 1


def test_writers_that_keep_losing_give_up_in_time():
    with cells.open("memory:") as connection:
        writer = connection.writer("x", int)
        swap = connection._backend.swap

        def another_first(path, base, record, deadline):
            swap(path, base, records.encode(records.CellRecord(1, "int", b"", b"\x05")), deadline)
            return swap(path, base, record, deadline)

        connection._backend.swap = another_first
        with pytest.raises(cells.Offline, match=r"other writers of cell default/x .* came first \d+ times") as caught:
            writer.write(1, timeout="0.05 s")
        assert not caught.value.maybe
        assert caught.value.value == 1


def test_cells_have_a_readable_repr():
    with cells.open("memory:") as connection:
        assert repr(connection) == "Connection('memory:')"
        assert repr(connection.writer("x", dict[str, int])) == "CellWriter(default/x: dict[str, int])"
        assert "default/m/" in repr(connection.map_reader("m", int))
