"""The connection to Kafka: its brokers and the client's options, without secrets in messages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_ENVIRONMENT = "TIDEWHEEL_KAFKA_"
_HIDDEN = ("password", "secret", "jaas", "pem", "token", "oauthbearer")
_OURS = ("bootstrap.servers", "group.id", "enable.auto.commit", "enable.partition.eof", "transactional.id", "error_cb")

_AWAY = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    "_MSG_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "REQUEST_TIMED_OUT",
)
_WITHOUT_COORDINATOR = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_COORDINATED_S = 0.1
T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    """The brokers, options of librdkafka, and how many seconds to wait for an answer."""

    brokers: str
    options: Mapping[str, str] = field(repr=False)
    timeout: float

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a client: the user's options override defaults, and the connector's own override both."""
        chosen = {"log_level": 2, "socket.keepalive.enable": True}
        return {**chosen, **self.options, "bootstrap.servers": self.brokers, **more}

    def hidden(self, text: str) -> str:
        """Return a text without the values of options that are secret."""
        for name, value in self.options.items():
            if value and is_secret(name):
                text = text.replace(str(value), "***")
        return text

    def failed(self, doing: str, error: Any) -> ConfigError | ConnectorError:
        """Return the exception for an error of the client, or for a text that says that there was no answer."""
        reason = self.hidden(error.str() if hasattr(error, "str") else str(error))
        text = f"cannot {doing} at the Kafka brokers {self.brokers}: {reason}"
        if _refused(error):
            return ConfigError(f"{text}; check the options security.protocol, sasl.* and ssl.*")
        return (ConnectorUnavailable if _passes(error) else ConnectorError)(text)

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Turn errors of the client into ours."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.failed(doing, error.args[0]) from None


def connection(brokers: str, options: Mapping[str, Any] | None, timeout: Duration) -> Connection:
    """Check the user's settings and add options from the environment.

    `TIDEWHEEL_KAFKA_SASL_PASSWORD` is the option `sasl.password`, and so on.
    """
    require()
    if not isinstance(brokers, str) or not brokers:
        raise ConfigError(f"the brokers of a Kafka are text such as 'host:9092,other:9092', not {brokers!r}")
    if "@" in brokers:
        raise ConfigError(
            "the brokers of a Kafka are hosts and ports alone; user and password are the options sasl.username and sasl.password"
        )
    patience = seconds(timeout, "the timeout of a Kafka connector", least=1)
    for name in options or {}:
        if name in _OURS:
            raise ConfigError(f"the option {name!r} belongs to the Kafka connector; leave it out")
    environment = {
        name.removeprefix(_ENVIRONMENT).lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(_ENVIRONMENT)
    }
    return Connection(
        brokers, {**environment, **{name: str(value) for name, value in (options or {}).items()}}, patience
    )


def is_secret(option: str) -> bool:
    """Return whether the value of an option must not be shown."""
    return any(word in option for word in _HIDDEN)


def require() -> None:
    """Raise a `ConfigError` that says what to install if the client is missing."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise ConfigError("Kafka needs the package confluent-kafka: pip install 'tidewheel[kafka]'") from error


def client(kind: Callable[[dict[str, Any]], Any], connected: Connection, **more: Any) -> Any:
    """Create a client; raise a `ConfigError` for an option that it rejects."""
    from confluent_kafka import KafkaException

    try:
        return kind(connected.settings(**more))
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ConfigError(f"the Kafka client does not take its options: {connected.hidden(reason)}") from None


class LastError:
    """Keeps the last error that the client reported in the background, for the error that a user will see."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take an error from the client."""
        # "All brokers are down" follows the error that caused it, and says less.
        if self.error is None or error.name() != "_ALL_BROKERS_DOWN":
            self.error = error

    def refused(self) -> bool:
        """Whether the brokers refused the log-in; a retry cannot succeed."""
        return self.error is not None and _refused(self.error)

    def text(self, fallback: Any) -> Any:
        """Return the last error, or `fallback` if there was none."""
        return fallback if self.error is None else self.error


def _refused(error: Any) -> bool:
    return hasattr(error, "name") and error.name() in (
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "_SSL",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    )


def _passes(error: Any) -> bool:
    """Return whether a retry may succeed."""
    return not hasattr(error, "name") or error.retriable() or error.name() in _AWAY


def once_coordinated(call: Callable[[], T], timeout: float) -> T:
    """Retry a call about a group's offsets until the group has a coordinator; raise the last error after the timeout.

    A new group, or one whose broker has just failed, has no coordinator for a moment, and the client does not retry.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + timeout
    while True:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].name() not in _WITHOUT_COORDINATOR or time.monotonic() > deadline:
                raise
        time.sleep(_COORDINATED_S)


class Patience:
    """A timeout that restarts with every progress."""

    def __init__(self, connected: Connection, errors: LastError, doing: str) -> None:
        """Start the timeout."""
        self._connected, self._errors, self._doing = connected, errors, doing
        self.progress()

    def progress(self) -> None:
        """Restart the timeout."""
        self._deadline = time.monotonic() + self._connected.timeout

    def check(self) -> None:
        """Raise if the brokers refused the log-in, or if the timeout has expired."""
        if self._errors.refused() or time.monotonic() > self._deadline:
            silent = f"no answer for {self._connected.timeout:g} seconds"
            raise self._connected.failed(self._doing, self._errors.text(silent)) from None
