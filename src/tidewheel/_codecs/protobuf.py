"""protobuf: a message per payload."""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, overload

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec, declared_shape, fitted
from tidewheel._values.columns import records
from tidewheel.errors import ConfigError

T = TypeVar("T")


@overload
def protobuf(message: Any, declared: None = None) -> PayloadCodec[dict[str, Any]]: ...
@overload
def protobuf(message: Any, declared: type[T]) -> PayloadCodec[T]: ...
@overload
def protobuf(message: Any, declared: UnionType) -> PayloadCodec[Any]: ...
def protobuf(message: Any, declared: Any = None) -> PayloadCodec[Any]:
    """Read and write messages of a generated class: as dicts of their fields, or as a declared type.

    Enumerations are numbers. A message within, or a field with presence, is None where it is not set. Fields that the class
    does not know are left out.
    """
    return Protobuf(message, declared)


class Protobuf(PayloadCodec):
    """Protocol buffers by the class that protoc generated."""

    name = "protobuf"

    def __init__(self, message: Any, declared: Any) -> None:
        """Check class and type."""
        try:
            from google.protobuf.message import Message  # type: ignore[import-untyped]
        except ImportError as error:
            raise ConfigError("Protobuf needs the package protobuf: pip install 'tidewheel[protobuf]'") from error
        if not isinstance(message, type) or not issubclass(message, Message):
            raise ConfigError(f"the codec protobuf takes a class that protoc generated, not {message!r}")
        self.message: Any = message
        self.shape = declared_shape(self.name, declared)

    def decode(self, payload: bytes) -> Any:
        return fitted(_fields(self.message.FromString(payload)), self.shape)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        """Return a message per row; a field that is null is left unset."""
        payloads = []
        for record in records(columns):
            try:
                message = self.message(**{name: value for name, value in record.items() if value is not None})
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"the record {record!r} does not fit the message {self.message.DESCRIPTOR.full_name}: {error}"
                ) from error
            payloads.append(message.SerializeToString())
        return payloads

    def __getstate__(self) -> dict[str, Any]:
        """Travel as the files that describe the message: a worker cannot import what was generated."""
        files: dict[str, bytes] = {}
        _collect(self.message.DESCRIPTOR.file, files)
        attributes = {name: value for name, value in self.__dict__.items() if name != "message"}
        return {**attributes, "described": (self.message.DESCRIPTOR.full_name, list(files.values()))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the class from its description."""
        from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]

        name, files = state.pop("described")
        self.__dict__.update(state)
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            pool.AddSerializedFile(file)
        self.message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _collect(file: Any, files: dict[str, bytes]) -> None:
    """Add a file's description behind those that it needs."""
    for needed in file.dependencies:
        _collect(needed, files)
    files.setdefault(file.name, file.serialized_pb)


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is None:
        return list(value) if _repeated(field) else value
    if not _repeated(field):
        return _fields(value)
    if field.message_type.GetOptions().map_entry:
        nested = field.message_type.fields_by_name["value"].message_type is not None
        return {key: _fields(item) if nested else item for key, item in value.items()}
    return [_fields(item) for item in value]


def _repeated(field: Any) -> bool:
    if hasattr(type(field), "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)
