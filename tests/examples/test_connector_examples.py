"""The programs under examples/ that bring their own servers find in their sinks what they must."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["nats_sessions.py", "sensors_delta.py"])
def test_the_sink_holds_exactly_what_it_must(name, spark, capsys, monkeypatch):
    for given in ("NATS", "MQTT"):
        monkeypatch.delenv(given, raising=False)
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), EXAMPLES / name)
    program = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, program)
    spec.loader.exec_module(program)
    status = program.main(spark)
    said = capsys.readouterr().out
    assert status == 0, said
    assert "exactly" in said
