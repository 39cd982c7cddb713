"""raw: unchanged bytes."""

from __future__ import annotations

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec
from tidewheel._values import Shape
from tidewheel.errors import ConfigError


def raw(column: str = "value") -> PayloadCodec[bytes]:
    """Use the bytes unchanged: a record is `bytes`; to send it, it must be the column of this name, bytes or text."""
    return Raw(column)


class Raw(PayloadCodec[bytes]):
    """The codec of unchanged bytes."""

    name = "raw"
    shape = Shape("scalar", bytes)

    def __init__(self, column: str) -> None:
        """Use this column for sending."""
        self.column = column

    def decode(self, payload: bytes) -> bytes:
        return payload

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        at = columns.schema.get_field_index(self.column)
        if at < 0:
            raise ConfigError(
                f"the codec raw sends the column {self.column!r}, and the records have {', '.join(columns.schema.names)}; "
                "make that column, or take another codec"
            )
        values = columns.column(at)
        kind = values.type
        if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_null(kind)):
            raise ConfigError(
                f"the codec raw sends bytes or text, and the column {self.column!r} is {kind}; take the codec json"
            )
        payloads: list[bytes] = values.cast(pa.binary()).to_pylist()
        return payloads
