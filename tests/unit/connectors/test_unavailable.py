"""An unreachable server raises the same error for every connector, so that retries do not depend on the connector."""

from __future__ import annotations

import pytest

from servers.stores import free_ports
from tidewheel import sinks, sources
from tidewheel.errors import ConnectorUnavailable


@pytest.fixture(scope="module")
def nowhere():
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize(
    "use",
    [
        lambda at, _: sinks.kafka(at, "t", timeout="0.5 s").start("j"),
        lambda at, _: sources.kafka(at, "t", timeout="0.5 s").opener().start(),
        lambda at, _: sinks.nats(f"nats://{at}", "a", timeout="0.2 s").start("j"),
        lambda at, _: sources.nats(f"nats://{at}", "s", timeout="0.2 s").opener(),
        lambda at, _: sinks.mqtt(f"mqtt://{at}", "a", timeout="0.2 s").start("j"),
        lambda at, path: sources.mqtt(f"mqtt://{at}", "a", buffer=path, client_id="x").reader().start(),
        lambda at, _: sinks.postgres(f"host=127.0.0.1 port={at.partition(':')[2]} user=x", "t", patience="0.1 s").start(
            "j"
        ),
        lambda at, _: sinks.delta(f"s3://bucket/table?endpoint=http://{at}&retry_s=0.1").start("j"),
    ],
    ids=[f"{name} {kind}" for name in ("kafka", "nats", "mqtt") for kind in ("sink", "source")] + ["postgres", "delta"],
)
def test_a_missing_server_is_unavailable(use, nowhere, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(ConnectorUnavailable):
        use(nowhere, str(tmp_path / "buffer"))
