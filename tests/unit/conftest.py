"""Settings for all unit tests: they are quick, and start neither a JVM nor a server."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A property states a result, never a duration: the machine may be busy.
settings.register_profile("unit", deadline=None, max_examples=60)
settings.load_profile("unit")

ALLOWED = ("python", "sh")
"""Programs that a unit test may start, besides scripts of its own in the folder for temporary files."""
HERE = Path(__file__).parent
JAVA = "#!/bin/sh\necho 'a unit test started Java; move the test to tests/integration' >&2\nexit 3\n"

_running: list[str] = []


def _refuse_servers(event: str, arguments: tuple) -> None:
    if not _running or event not in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
        return
    program = Path(os.fsdecode(arguments[0]))
    if not program.name.startswith(ALLOWED) and Path(tempfile.gettempdir()) not in program.parents:
        raise RuntimeError(f"{_running[-1]} started {program}; tests with servers or Spark belong in tests/integration")


sys.addaudithook(_refuse_servers)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fail a unit test if it, or a fixture that it uses, starts a JVM or a server."""
    if HERE not in item.path.parents:  # Pytest calls this hook for the tests of other folders too.
        return (yield)
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        java = Path(home, "bin", "java")
        java.parent.mkdir()
        java.write_text(JAVA)
        java.chmod(0o700)
        patch.setenv("JAVA_HOME", home)
        _running.append(item.nodeid)
        try:
            return (yield)
        finally:
            _running.pop()
