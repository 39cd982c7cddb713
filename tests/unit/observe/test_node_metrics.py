"""A fleet's node serves metrics while it works, under its own name."""

from __future__ import annotations

import urllib.request

from typer.testing import CliRunner

from servers.stores import free_ports
from support.internals import app
from tidewheel._observe.records import CommitRecord
from tidewheel.fleet._cli import node as command

PROGRAM = """
from tidewheel import Job, sinks
from tidewheel.sources import inbox

job = Job("orders")
job.source("in", inbox("file:inbox")).key_by("by", "key").sink("out", sinks.discard())
"""


def test_a_node_serves_its_metrics_and_passes_them_to_its_runs(tmp_path, monkeypatch):
    (port,) = free_ports(1)
    seen = {}

    class Node:
        def __init__(self, job, engine, options):
            self.engine = engine

        def execute(self):
            self.engine._metrics.committed(CommitRecord(3, 1, node=self.engine._node, held=16))
            seen["text"] = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()

    monkeypatch.setattr(command, "Node", Node)
    (tmp_path / "orders.py").write_text(PROGRAM)
    places = ["--cells", f"file://{tmp_path}/cells", "--inbox", f"file://{tmp_path}/inbox"]
    arguments = ["node", "--job", str(tmp_path / "orders.py"), *places, "--name", "one", "--metrics", str(port)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert 'tidewheel_shards_held{job_name="orders",node="one"} 16.0' in seen["text"]
