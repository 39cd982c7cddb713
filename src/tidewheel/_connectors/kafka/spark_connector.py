"""Kafka through Spark's own connector, where its jar is on the class path."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tidewheel._connectors.kafka.client import is_secret, variable_of
from tidewheel._connectors.kafka.log import KafkaLog, Start, Topics, split
from tidewheel._connectors.log_source import Positions
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KIND = "kafka"
"""What Spark calls the streams of its connector."""
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_PROVIDERS = "org.apache.kafka.common.config.provider"
_LOOKED_UP = {
    "config.providers": "env,file",
    "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
    "config.providers.env.param.allowlist.pattern": "TIDEWHEEL_KAFKA_.*",
    "config.providers.file.class": f"{_PROVIDERS}.DirectoryConfigProvider",
}
_CERTIFICATES = {
    "ssl.ca": ("truststore", "ssl.truststore.certificates"),
    "ssl.certificate": ("keystore", "ssl.keystore.certificate.chain"),
    "ssl.key": ("keystore", "ssl.keystore.key"),
}
"""What librdkafka takes as `….pem`, PEM as text, or as `….location`, the name of a file with it, and what Java calls it."""


def is_there(spark: SparkSession) -> bool:
    """Tell whether the JVM finds the connector."""
    from py4j.protocol import Py4JJavaError

    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_PROVIDER)
    except Py4JJavaError:
        return False
    return True


def load(spark: SparkSession, topics: Topics, max_records: int | None) -> DataFrame:
    """Return the streaming DataFrame, with the columns that the connector in Python has."""
    # Brokers or topics that are not there give the same errors as with Python's connector, and as soon.
    with closing(KafkaLog(topics)) as log:
        begin = log.start_offsets()
    if topics.start.kind == "offsets":
        # Spark's connector takes offsets of all partitions, or of none.
        topics = replace(topics, start=Start("offsets", offsets=begin))
    frame = spark.readStream.format("kafka").options(**spark_options(topics, max_records)).load()
    return frame.select(*topics.schema.names)


def spark_options(topics: Topics, max_records: int | None) -> dict[str, str]:
    """Return the options of Spark's connector that mean the same."""
    if topics.lost == "latest":
        raise ConfigError('lost="latest" is not what Spark\'s Kafka connector can do; say connector="python"')
    options = {
        "subscribe": ",".join(topics.names),
        "includeHeaders": str(topics.headers).lower(),
        "failOnDataLoss": str(topics.lost == "fail").lower(),
        **{f"kafka.{name}": value for name, value in java_options(topics.connection.options).items()},
        "kafka.bootstrap.servers": topics.connection.brokers,
    }
    options.setdefault("kafka.isolation.level", "read_committed")
    if max_records is not None:
        options["maxOffsetsPerTrigger"] = str(max_records)
    start = topics.start
    if start.kind == "time":
        options["startingTimestamp"] = str(start.milliseconds)
    elif start.kind == "offsets":
        by_topic: dict[str, dict[str, int]] = {}
        for name, offset in start.offsets.items():
            topic, number = split(name)
            by_topic.setdefault(topic, {})[str(number)] = offset
        options["startingOffsets"] = json.dumps(by_topic)
    else:
        options["startingOffsets"] = start.kind
    return options


def positions_of(offsets: str) -> Positions:
    """Return what Spark's connector records, offsets by topic and partition, as positions of a `KafkaLog`.

    >>> positions_of('{"orders": {"0": 7, "1": 9}}')
    {'orders/0': 7, 'orders/1': 9}
    """
    recorded: dict[str, dict[str, int]] = json.loads(offsets)
    return {f"{topic}/{number}": offset for topic, part in recorded.items() for number, offset in part.items()}


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's options as the Java client names them; names that both know stay.

    Spark shows the options of a source in plans and logs. So they have no secrets, only the names of the variables of the
    environment, or of the files, that have them, in which the Java client looks them up.
    """
    given = {name: _reference(name, value) if is_secret(name) else value for name, value in options.items()}
    for name, (store, called) in _CERTIFICATES.items():
        for form in ("location", "pem"):
            if (value := given.pop(f"{name}.{form}", None)) is not None:
                given[called] = _content(value) if form == "location" else value
                given[f"ssl.{store}.type"] = "PEM"
    if any(value.startswith("${") for value in given.values()):
        given |= _LOOKED_UP
    mechanism = given.pop("sasl.mechanisms", None) or given.get("sasl.mechanism")
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if mechanism is not None:
        given["sasl.mechanism"] = mechanism
    if user is not None and password is not None:
        module = _LOGIN.get(str(mechanism or "PLAIN"))
        if module is None:
            raise ConfigError(
                f'Spark\'s Kafka connector cannot log in by {mechanism} with a name; say connector="python"'
            )
        if any(each in options["sasl.password"] for each in '"\\'):
            raise ConfigError(
                'Spark\'s Kafka connector cannot take a password with a quotation mark or a backslash; say connector="python"'
            )
        given["sasl.jaas.config"] = f'{module} required username={json.dumps(user)} password="{password}";'
    return given


def _content(path: str) -> str:
    """Return what stands for the text in a file, which the Java client reads wherever it runs."""
    folder, name = os.path.split(os.path.abspath(path))
    return f"${{file:{folder}:{name}}}"


def _reference(option: str, value: str) -> str:
    variable = variable_of(option)
    if os.environ.get(variable) != value:
        raise ConfigError(
            f"Spark's Kafka connector would show the option {option!r} in its plans and logs: leave it out, and set the variable "
            f'{variable} where the driver and the executors run, or say connector="python"'
        )
    return f"${{env:{variable}}}"
