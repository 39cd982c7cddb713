"""The datasets of a program: its sources and sinks under the names that OpenLineage's rules give them.

The rules are found by the name of the connector's class, because optional connectors must not be imported. Sources and sinks
without a dataset, such as a function or the console, are left out. Names contain no log-ins and no settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._core.urls import Url
from tidewheel._engine.plan import Plan, known_columns
from tidewheel._observe.lineage import Dataset, Datasets
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.stateless.source import SourceOperator

Name = tuple[str, str]
"""A namespace and a name."""


def datasets_of(plan: Plan, columns: Mapping[str, pa.Schema]) -> Datasets:
    """Return the datasets that a program reads and writes. `columns` has the columns of its sources, by name."""
    sources = {node.id: columns[node.name] for node in plan.sources() if node.name in columns}
    known = known_columns(plan, sources)
    inputs: list[Dataset] = []
    outputs: list[Dataset] = []
    for node in plan.nodes:
        if isinstance(node.operator, SourceOperator):
            inputs += _datasets(names_of(node.operator.source), sources.get(node.id))
        elif isinstance(node.operator, SinkOperator):
            given = [known.get(port) or plan.nodes[port.node].shapes[port.port].schema() for port in node.inputs]
            outputs += _datasets(names_of(node.operator.sink), given[0] if len(given) == 1 else None)
    return Datasets(_merged(inputs), _merged(outputs))


def _datasets(names: Iterable[Name], columns: pa.Schema | None) -> Iterator[Dataset]:
    fields = tuple((field.name, str(field.type)) for field in columns or () if field.name != BAD_LINE)
    return (Dataset(namespace, name, fields) for namespace, name in names)


def _merged(datasets: Iterable[Dataset]) -> list[Dataset]:
    """Return each dataset once: several sources may read one topic."""
    found: dict[Name, Dataset] = {}
    for each in datasets:
        before = found.get(each[:2], each)
        found[each[:2]] = before if before.fields == each.fields else each._replace(fields=())
    return list(found.values())


def names_of(connector: Any) -> list[Name]:
    """Return the datasets of a source or sink; none if it has no name that others know."""
    for kind in type(connector).__mro__:
        rule = _RULES.get(f"{kind.__module__.removeprefix('tidewheel.')}.{kind.__name__}")
        if rule is not None:
            return list(rule(connector))
    return []


def place_of(url: str) -> Name:
    """Return the dataset at a path or URL.

    >>> place_of("s3://lake/orders?region=eu-1"), place_of("/data/in"), place_of("abfss://box@account.dfs.core.windows.net/a")
    (('s3://lake', 'orders'), ('file', '/data/in'), ('abfss://box@account.dfs.core.windows.net', 'a'))
    """
    text = str(Url(url)).partition("?")[0]
    if "://" not in text or text.startswith("file:"):
        return "file", os.path.abspath(re.sub("^(file:)?/*(?=/)", "", text).removeprefix("file:"))
    parts = urlsplit(text)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _topics(brokers: str, topics: Iterable[str]) -> Iterator[Name]:
    return ((f"kafka://{brokers.split(',')[0].strip()}", topic) for topic in topics)


def _kafka_source(source: Any) -> Iterator[Name]:
    # Which topics match a pattern is known to the broker alone.
    return _topics(source.topics.connection.brokers, source.topics.names)


def _server(url: Url) -> str:
    """Return the first server of a URL, without the log-in."""
    parts = urlsplit(str(url))
    return f"{parts.scheme}://{parts.netloc.split(',')[0]}"


def _postgres(sink: Any) -> Iterator[Name]:
    host, _, database = sink.server.describe().partition("/")
    table = sink.table.name if "." in sink.table.name else f"public.{sink.table.name}"
    yield f"postgres://{host}", f"{database}.{table}" if database else table


def _iceberg(name: Any) -> Iterator[Name]:
    given = dict(name.properties)
    where = given.get("uri") if given.get("type") == "rest" else given.get("warehouse") or given.get("uri")
    yield (name.catalog if where is None else str(Url(where)).rstrip("/")), name.table


def _chain(source: Any) -> list[Name]:
    return [*names_of(source.first), *names_of(source.then)]


_RULES: dict[str, Callable[[Any], Iterable[Name]]] = {
    "_connectors.delta.sink.Delta": lambda sink: [place_of(sink.location.url)],
    "_connectors.delta_history.source.DeltaTableAt": lambda table: [place_of(table.url)],
    "_connectors.files.sink.Files": lambda sink: [place_of(sink.path)],
    "_connectors.files.source.FileSource": lambda source: [place_of(source.path)],
    "_connectors.iceberg.sink.Iceberg": lambda sink: _iceberg(sink.name),
    "_connectors.iceberg_history.source.IcebergTableAt": lambda table: _iceberg(table.name),
    "_connectors.kafka.chain.ChainSource": _chain,
    "_connectors.kafka.sink.Kafka": lambda sink: _topics(sink.target.connection.brokers, [sink.target.topic]),
    "_connectors.kafka.source.KafkaSource": _kafka_source,
    "_connectors.mqtt.sink.Mqtt": lambda sink: [(_server(sink._url), sink.form.address)],
    "_connectors.mqtt.source.MqttSource": lambda source: [
        (_server(source.bridging.url), topic) for topic in source.bridging.topics
    ],
    "_connectors.nats.sink.Nats": lambda sink: [(_server(sink._url), sink.form.address)],
    "_connectors.nats.source.NatsSource": lambda source: [(_server(source.opener.url), source.opener.stream)],
    "_connectors.postgres.sink.Postgres": _postgres,
    "_connectors.table_history.TableHistory": lambda source: names_of(source.table),
    "fleet._inbox.source.InboxSource": lambda source: [place_of(source.url.reveal())],
}
"""The rules by class. A class that inherits from one of these follows its rule."""
