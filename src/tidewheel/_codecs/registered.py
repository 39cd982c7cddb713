"""Payloads that name their schema: a zero byte, the id of the schema in a registry, then the record."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec
from tidewheel._codecs.registry import Registry, Schema
from tidewheel._values.type_variables import Value
from tidewheel.errors import ConfigError

SUBJECT = "{topic}-value"
"""The default subject: one schema per topic."""
_HEADER = struct.Struct(">bI")
_PLACES = ("topic", "record")
T = TypeVar("T")


class SchemaCodec(PayloadCodec[Value], Generic[Value]):
    """A codec of records that have a schema, which a registry can hold."""

    schema_type: ClassVar[str]
    """The type of its schemas in a registry."""

    @abstractmethod
    def own_schema(self) -> tuple[str, str]:
        """Return the text of the schema to write with, and the name of the record; raise a `ConfigError` if there is none."""

    @abstractmethod
    def decode_written(self, body: bytes, registry: Registry, number: int) -> Any:
        """Return the record that was written with the schema of this id."""

    def body_head(self) -> bytes:
        """Return the bytes between the id and the record."""
        return b""


class Registered(PayloadCodec[Value], Generic[Value]):
    """A codec whose payloads name the schema that they were written with."""

    def __init__(self, inner: SchemaCodec[Value], registry: str, subject: str, topic: str | None = None) -> None:
        """Check the URL of the registry and the form of subjects."""
        if not isinstance(registry, str):
            raise ConfigError(f"registry= is the URL of a schema registry, not {registry!r}")
        self._inner, self._registry, self._subject, self._topic = inner, registry, subject, topic
        self.shape = inner.shape
        self.name = inner.name  # type: ignore[misc]  # it is that of the codec inside
        self._at = Registry.at(registry)
        self._number: int | None = None
        """The id of the schema to write with, known from the start of the sink on."""
        try:
            subject.format(topic="t", record="r")
        except (AttributeError, KeyError, IndexError, ValueError):
            raise ConfigError(
                f"subject= is text in which {{topic}} and {{record}} are replaced, such as {SUBJECT!r}, not {subject!r}"
            ) from None

    def for_topic(self, topic: str) -> Registered[Value]:
        return Registered(self._inner, self._registry, self._subject, topic)

    def prepare(self) -> None:
        """Check the schema against the registry and register it. Raise an error if the registry does not accept it."""
        text, record = self._inner.own_schema()
        if self._topic is None and "{topic}" in self._subject:
            raise ConfigError(
                f"the sink has no topic for the subject {self._subject!r} of its schema; give the codec subject="
            )
        subject = self._subject.format(topic=self._topic, record=record)
        self._number = self._at.registered(subject, Schema(self._inner.schema_type, text))

    def decode(self, payload: bytes) -> Any:
        if len(payload) < _HEADER.size or payload[0]:
            raise ValueError("the payload does not begin with a zero byte and the id of a schema")
        _, number = _HEADER.unpack_from(payload)
        schema = self._at.schema(number)
        if schema.type != self._inner.schema_type:
            raise ValueError(f"its schema {number} is of the type {schema.type}, not {self._inner.schema_type}")
        return self._inner.decode_written(payload[_HEADER.size :], self._at, number)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        if self._number is None:
            self.prepare()
        head = _HEADER.pack(0, self._number) + self._inner.body_head()
        return [head + body for body in self._inner.encode(columns)]


def with_registry(make: Callable[[], SchemaCodec[T]], registry: str | None, subject: str) -> PayloadCodec[T]:
    """Return a codec, whose payloads name their schemas if there is a registry."""
    return make() if registry is None else Registered(make(), registry, subject)
