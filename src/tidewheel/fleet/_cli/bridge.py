"""`tidewheel bridge`: send records from other systems to a fleet's inbox."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Annotated

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Commands
from tidewheel._cli.log_options import LogFormat, LogLevel, configure_logs
from tidewheel._core.logs import logger
from tidewheel.errors import ConfigError
from tidewheel.fleet._cli.node import Inbox
from tidewheel.fleet._inbox import open_inbox

_LOG = logger(__name__)

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Send records from other systems to a fleet's inbox.",
    rich_markup_mode="markdown",
)


@app.callback()
def bridge() -> None:
    """Send records from other systems to a fleet's inbox."""


@app.command()
def kafka(
    brokers: Annotated[str, typer.Option(metavar="HOST:PORT,…", help="The Kafka brokers.")],
    topic: Annotated[str, typer.Option(metavar="NAME", help="The topic.")],
    inbox: Inbox,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", metavar="FIELD", help="The field that holds an event's key; by default the record's key."
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="N", help="The job's n_shards; required to create an inbox.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The consumer group for committed offsets; by default derived from topic and inbox."
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An inbox for invalid records; by default they stop the bridge."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A librdkafka option; pass secrets as TIDEWHEEL_KAFKA_SASL_PASSWORD."),
    ] = None,
    to_the_end: Annotated[bool, typer.Option("--to-the-end", help="Stop at the end of the topic.")] = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Send the records of a Kafka topic to a fleet's inbox, each once, in the order of their partitions.

    Records must be JSON. The bridge can be killed and restarted at any time: each partition is a producer, its offsets
    are the event numbers, and records that are already stored are skipped. For example:

        tidewheel bridge kafka --brokers host:9092 --topic orders --inbox nats://host:4222/orders --key user
    """
    from tidewheel._connectors.kafka.client import connection
    from tidewheel.fleet._nodes.with_kafka.bridge import BridgeSettings, KafkaBridge

    configure_logs(log_level, log_format)
    options = dict(each.partition("=")[::2] for each in option or ())
    if bad := [name for name, value in options.items() if not value]:
        raise ConfigError(f"--option {bad[0]} is not NAME=VALUE")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as opened:
        target = opened.enter_context(open_inbox(inbox, shards))
        letters = None if dead_letters is None else opened.enter_context(open_inbox(dead_letters, target.n_shards))
        name = group or f"tidewheel-{topic}-{target.url.rpartition('/')[2]}"
        settings = BridgeSettings(connection(brokers, options, "30 s"), topic, key, name, letters)
        _LOG.info("topic %s goes to %s, in the name of the group %s", topic, target.url, name)
        stored = KafkaBridge(settings, target).run(stop.is_set, to_the_end)
        echo(f"stored {stored} records of topic {topic}")
