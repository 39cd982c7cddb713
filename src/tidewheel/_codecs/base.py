"""The interface of payload codecs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic

import msgspec
import pyarrow as pa

from tidewheel._values import ANY, DICT, Shape, shape_of
from tidewheel._values.type_variables import Value
from tidewheel.errors import ConfigError

ABSENT: Any = ...
"""The value of a column that the stream does not have."""


class PayloadCodec(ABC, Generic[Value]):
    """Converts the bytes of a message to a record, and records to bytes. It is pickled to the tasks."""

    name: ClassVar[str]
    """The codec's name in errors; by default the name of the class."""
    shape: Shape = DICT
    """The form of the records in the program."""
    message_columns: ClassVar[tuple[str, ...]] = ()
    """Other columns of a message that the codec needs, such as its key. Then `decode_message` is called, not `decode`."""

    def __init_subclass__(cls) -> None:
        """Set the default name of a codec to the name of its class."""
        super().__init_subclass__()
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    def for_topic(self, topic: str) -> PayloadCodec[Value]:
        """Return the codec for a sink that sends to this topic."""
        return self

    def prepare(self) -> None:
        """Prepare to write, and raise if that fails. A sink calls this in the driver when it starts."""

    @abstractmethod
    def decode(self, payload: bytes) -> Value:
        """Return the record. An exception means that the payload is invalid; its text is the reason.

        Exceptions: a `ConfigError` ends the run, and a transient error, such as `ConnectorUnavailable`, repeats the batch.
        """

    def decode_message(self, payload: bytes | None, *columns: Any) -> Value:
        """Return the record of a message with these `message_columns`; a column that the stream lacks is `ABSENT`."""
        raise NotImplementedError(f"{type(self).__name__} has message_columns, so it must define decode_message")

    @abstractmethod
    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """Return the payload of each row; raise `ConfigError` for columns that cannot be encoded."""


def declared_shape(codec: str, declared: Any) -> Shape:
    """Return the shape of records of a declared type; dicts if none is declared."""
    if declared is None:
        return DICT
    shape = shape_of(declared)
    if shape == ANY:
        raise ConfigError(
            f"the {codec} codec decodes into a dataclass, a msgspec.Struct or a plain type, not {declared!r}"
        )
    return shape


def fitted(record: Any, shape: Shape) -> Any:
    """Return a decoded dict as the declared type."""
    return record if shape == DICT else msgspec.convert(record, shape.type)


def payload_codec(given: Any) -> PayloadCodec:
    """Return the codec; raise an error that lists the codecs if it is not one."""
    if isinstance(given, PayloadCodec):
        return given
    raise ConfigError(
        f"{given!r} is not a codec of payloads; see tidewheel.codecs: json(Type), avro(schema), protobuf(Message), raw(), "
        "debezium()"
    )
