"""What a codec of payloads is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic

import msgspec
import pyarrow as pa

from tidewheel._values import ANY, DICT, Shape, shape_of
from tidewheel._values.type_variables import Value
from tidewheel.errors import ConfigError


class PayloadCodec(ABC, Generic[Value]):
    """Turns the bytes of a message into a record, and records into bytes. It travels to the tasks."""

    name: ClassVar[str]
    """What errors call the codec; without one it is the name of the class."""
    shape: Shape = DICT
    """What the records look like in the program."""

    def __init_subclass__(cls) -> None:
        """Give a codec that has no name the name of its class."""
        super().__init_subclass__()
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    @abstractmethod
    def decode(self, payload: bytes) -> Value:
        """Return the record. Any exception means that the payload does not decode; its text says why."""

    @abstractmethod
    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """Return the payload of each row; columns that cannot be encoded are a `ConfigError`."""


def declared_shape(codec: str, declared: Any) -> Shape:
    """Return the shape of records of a declared type, dicts where none is declared."""
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
    """Return the codec, or raise an error that tells which there are."""
    if isinstance(given, PayloadCodec):
        return given
    raise ConfigError(
        f"{given!r} is not a codec of payloads; see tidewheel.codecs: json(Type), avro(schema), protobuf(Message), raw()"
    )
