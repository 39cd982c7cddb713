"""Start Kafka, NATS and etcd and run `examples/fleet_demo.py` against them: `make fleet-demo`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from servers.java_archive import java_environment, prepare
from servers.kafka_server import running_kafka
from servers.nats_server import running_nats
from servers.stores import running_etcd

DEMO = Path(__file__).resolve().parents[2] / "examples" / "fleet_demo.py"


def main() -> int:
    """Run the demo with the given arguments and return its exit status."""
    prepare()
    with tempfile.TemporaryDirectory(prefix="fleet-servers-") as name:
        folder = Path(name)
        with (
            running_etcd(folder / "etcd") as etcd,
            running_nats(folder / "nats") as nats,
            running_kafka(folder / "kafka") as kafka,
        ):
            servers = ["--brokers", kafka.brokers, "--cells", etcd.url("fleet"), "--inbox", nats.url("events")]
            command = [sys.executable, str(DEMO), *servers, *sys.argv[1:]]
            return subprocess.run(command, env={**os.environ, **java_environment()}).returncode


if __name__ == "__main__":
    sys.exit(main())
