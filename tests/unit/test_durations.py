"""Durations are written one way everywhere: a `timedelta` or text such as "90 s", never a bare number."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.memory_inbox import MemoryInbox
from tidewheel import cells, sinks, sources
from tidewheel.checkpoints import CheckpointManager, CheckpointStore
from tidewheel.errors import GraphError
from tidewheel.fleet import Router

MODULES = (
    "tidewheel",
    "tidewheel.cells",
    "tidewheel.cells.aio",
    "tidewheel.checkpoints",
    "tidewheel.codecs",
    "tidewheel.connectors",
    "tidewheel.fleet",
    "tidewheel.sinks",
    "tidewheel.sources",
)
NO_DURATIONS = {"weight"}
"""Parameters that are numbers with a fraction, and no durations."""
RESULTS = {"BatchProgress"}
"""What a run tells of itself, which no user makes."""


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in MODULES:
        for name in (loaded := importlib.import_module(module)).__all__:
            value = getattr(loaded, name)
            if inspect.isfunction(value):
                yield f"{module}.{name}", value
            elif inspect.isclass(value) and name not in RESULTS:
                for member, method in inspect.getmembers(value, inspect.isfunction):
                    if member == "__init__" or not member.startswith("_"):
                        yield f"{module}.{name}.{member}", method


def test_no_public_parameter_is_a_bare_number_of_seconds():
    bare = [
        f"{name}({parameter})"
        for name, function in functions()
        for parameter in inspect.signature(function).parameters.values()
        if str(parameter.annotation) in ("float", "float | None") and parameter.name not in NO_DURATIONS
    ]
    assert bare == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: Router(MemoryInbox(4), linger=0.05),
        lambda: Router(MemoryInbox(4), timeout=30),
        lambda: cells.open("memory:durations", timeout=10),
        lambda: CheckpointManager(CheckpointStore.open("memory:durations"), every=5),
        lambda: cells.TicketIssuer("s" * 32, audience="a").issue("me", lifetime=3600),
        lambda: cells.TicketValidator("s" * 32, audience="a", ahead=30),
        lambda: sources.kafka("h:9092", "t", timeout=30),
        lambda: sources.mqtt("mqtt://h", "t", buffer="b", client_id="c", quiet=1),
        lambda: sources.nats("nats://h", "s", timeout=5),
        lambda: sinks.kafka("h:9092", "t", timeout=60),
        lambda: sinks.mqtt("mqtt://h", "t", patience=30),
        lambda: sinks.nats("nats://h", "s", patience=30),
        lambda: sinks.postgres("host=h", "t", patience=60),
    ],
)
def test_a_bare_number_is_refused_with_what_to_write(call):
    with pytest.raises(GraphError, match=r"a number without a unit; write '.* s'"):
        call()


def test_a_wait_of_a_cell_refuses_a_bare_number():
    with cells.open("memory:durations") as connection:
        writer = connection.writer("x", int)
        for wait in (
            lambda: writer.write(1, timeout=5),
            lambda: writer.refresh(5),
            lambda: writer.when.updated(timeout=5),
            lambda: writer.when.reaches(0, timeout=5),
        ):
            with pytest.raises(GraphError, match="write '5 s'"):
                wait()
