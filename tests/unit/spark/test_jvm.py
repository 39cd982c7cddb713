"""A JVM that has ended: how it is noticed and reported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from support.waiting import SOON
from tidewheel._spark import jvm


class Gateway:
    def __init__(self, process):
        self.proc = process


@pytest.fixture
def process(monkeypatch):
    """A process in the place of the JVM; what is written to it ends it."""
    code = "import sys; sys.exit(int(sys.stdin.readline()))"
    started = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
    monkeypatch.setattr(jvm.SparkContext, "_gateway", Gateway(started))
    # Python may not have begun to read when it is told to end.
    monkeypatch.setattr(jvm, "_PATIENCE_S", SOON)
    yield started
    started.kill()
    started.communicate()


def test_a_killed_jvm_is_reported_with_its_signal(process):
    process.kill()
    assert jvm.ended(ConnectionRefusedError()) == f"Spark's JVM, process {process.pid}, has ended by SIGKILL"


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), Py4JError("An error occurred while calling o144.await")])
def test_a_jvm_that_ended_by_itself_is_reported_with_its_status(process, error):
    process.stdin.write("52\n")
    process.stdin.flush()
    assert jvm.ended(error) == f"Spark's JVM, process {process.pid}, has ended with status 52"


def test_an_error_that_is_not_of_the_connection_leaves_the_jvm_alive(process):
    assert jvm.ended(ValueError("x")) is None


def test_a_jvm_of_another_process_is_judged_by_its_connection(monkeypatch):
    monkeypatch.setattr(jvm.SparkContext, "_gateway", Gateway(None))
    assert jvm.ended(ConnectionResetError()) == "Spark's JVM has ended"
    assert jvm.ended(ValueError("x")) is None
