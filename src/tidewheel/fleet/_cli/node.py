"""`tidewheel node`: join a fleet that runs one job on several machines."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from typing import Annotated, Any

import typer

from tidewheel._cli.duration import duration
from tidewheel._cli.failures import Verbose
from tidewheel._cli.log_options import LogFormat, LogLevel, Traces, configure_logs
from tidewheel._cli.program import load_job
from tidewheel._cli.progress import facts, line
from tidewheel._cli.run_options import with_run_options
from tidewheel._observe.endpoint import MetricsEndpoint
from tidewheel._observe.metrics import Metrics
from tidewheel._spark.option_kinds import AUTO
from tidewheel._spark.options import RunOptions
from tidewheel._time.duration import seconds
from tidewheel.errors import ConfigError
from tidewheel.fleet._nodes.membership import LEASE_SECONDS
from tidewheel.fleet._nodes.node import Node, NodeOptions

Cells = Annotated[
    str,
    typer.Option(
        "--cells", metavar="URL", envvar="TIDEWHEEL_CELLS", help="The URL of the fleet's cells: etcd:, a folder, …"
    ),
]
Inbox = Annotated[
    str,
    typer.Option("--inbox", metavar="URL", envvar="TIDEWHEEL_INBOX", help="The fleet's inbox: a folder, file:, nats:"),
]


_OPTIONS = (
    "parallelism",
    "every",
    "state",
    "master",
    "restarts",
    "local",
    "conf",
    "metrics",
    "ready_within",
    "history",
)
"""The run options that a node has."""


@with_run_options(_OPTIONS, defaults={"restarts": 5}, environment={"state": "TIDEWHEEL_STATE"})
def node(
    job: Annotated[
        str,
        typer.Option(
            "--job",
            metavar="PROGRAM[:JOB]",
            help="The program, a Python file whose job reads an inbox; the same on all nodes.",
        ),
    ],
    cells: Cells,
    inbox: Inbox,
    options: RunOptions,
    name: Annotated[
        str | None, typer.Option("--name", help="This node's name; by default derived from host and process.")
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            callback=duration,
            metavar="TIME",
            help="How long a node can be silent before others take its shards; at least '1 s'.",
        ),
    ] = f"{LEASE_SECONDS:g} s",
    retention: Annotated[
        str | None,
        typer.Option(
            callback=duration,
            metavar="TIME",
            help="Delete unneeded events at this age, such as '7 days'; by default all are kept.",
        ),
    ] = None,
    traces: Traces = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
    verbose: Verbose = False,
) -> None:
    """Join a fleet: run some of a job's shards, take over shards of failed nodes, hand over shards to new nodes.

    Ctrl-C, SIGTERM or SIGHUP finishes the batch and leaves; the other nodes take the shards at once. A second Ctrl-C
    aborts, and the other nodes take the shards when the lease expires. Both are safe.

    For example:

        tidewheel node --job clicks.py --cells etcd://host:2379/fleet --inbox nats://host:4222/clicks --state s3://bucket/state

    Exit status: 0 the node left on request, 1 an error, 2 another live node has this name, 130 aborted.
    """
    from tidewheel.fleet._spark_engine import SparkEngine

    configure_logs(log_level, log_format, traces)
    if options.parallelism == AUTO:
        raise ConfigError(
            "a node of a fleet does not choose its parallelism: give a number, or leave the option out for one task per core. "
            "To add capacity, start another node"
        )
    loaded = load_job(job, options.state)
    events = _EventPrinter(as_json)
    run = dataclasses.replace(
        options, progress=lambda batch: events("batch", facts(batch) if as_json else {"": line(batch)})
    )
    lease_s = seconds(lease, "--lease", least=10**9)
    retention_s = None if retention is None else seconds(retention, "--retention")
    chosen = name or default_name()
    events.node = chosen
    figures: Metrics | None = None
    with contextlib.ExitStack() as endpoints:
        if options.metrics is not None:
            figures = Metrics(loaded.name, chosen, ready_within=seconds(options.ready_within, "ready_within"))
            endpoints.enter_context(MetricsEndpoint(figures, options.metrics))
        node_options = NodeOptions(chosen, cells, inbox, lease_s, options.restarts, retention_s, events)
        Node(loaded, SparkEngine(chosen, run, figures), node_options).execute()


def default_name() -> str:
    """Return a name that no other process of the fleet has."""
    import os
    import re
    import socket

    return re.sub(r"[^A-Za-z0-9.-]", "-", f"{socket.gethostname()}-{os.getpid()}")


class _EventPrinter:
    """Prints one line per event of a node."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.node = ""

    def __call__(self, event: str, about: dict[str, Any]) -> None:
        if self.as_json:
            print(json.dumps({"event": event, "node": self.node, "at": time.time(), **about}), flush=True)
            return
        details = " ".join(f"{name} {_shown(value)}".strip() for name, value in about.items())
        print(f"{self.node}: {event} {details}", flush=True, file=sys.stdout)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
