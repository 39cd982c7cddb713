"""debezium: changes of a table, as Debezium's connectors send them."""

from __future__ import annotations

import base64
import datetime
from typing import Any, ClassVar, Literal, NoReturn

import msgspec
import pyarrow as pa

from tidewheel._codecs.base import ABSENT, PayloadCodec, payload_codec
from tidewheel._codecs.json import json
from tidewheel._values import Shape
from tidewheel.errors import ConfigError

Operation = Literal["insert", "update", "delete", "snapshot"]
_OPERATIONS: dict[Any, Operation] = {"c": "insert", "u": "update", "d": "delete", "r": "snapshot"}
_UNAVAILABLE = "__debezium_unavailable_value"
"""The default text of the connectors for a large column that an update did not change and the database did not log."""
_UNAVAILABLE_TEXTS = frozenset(
    {
        _UNAVAILABLE,
        base64.b64encode(_UNAVAILABLE.encode()).decode(),
        _UNAVAILABLE.encode().hex(),
        f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}',
    }
)
"""This text in the forms for columns of text, bytes and, as JSON, pairs."""
_UNAVAILABLE_VALUES = (
    _UNAVAILABLE.encode(),
    {_UNAVAILABLE: _UNAVAILABLE},
    [_UNAVAILABLE],
    ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    list(_UNAVAILABLE.encode()),
)
"""This text in the forms for columns of bytes, pairs, and arrays of texts, UUIDs and numbers."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Fields = dict[str, Any]
"""The columns of a row, or of its key, by name."""


class Change(msgspec.Struct, frozen=True):
    """A change of one row of a table, as `codecs.debezium` reads it."""

    op: Operation
    """A snapshot is a row that existed when the connector took its snapshot of the table."""
    table: str
    """The name of the table with its schema or database, as far as the event has them; empty for a tombstone."""
    row: Fields | None
    """The row after the change; None if the row was deleted."""
    before: Fields | None = None
    """The row before the change, as far as the database logs it: often only the columns of the primary key, or None."""
    key: Fields | None = None
    """The columns of the message key; None if the stream has no such column."""
    time: datetime.datetime | None = None
    """The time of the change in the database; for a tombstone, the time of the message."""
    unchanged: tuple[str, ...] = ()
    """The columns that the event does not contain because the update did not change them. `upserts` fills them in."""


def debezium(
    codec: PayloadCodec[Fields] | None = None, *, key: PayloadCodec[Fields] | None = None
) -> PayloadCodec[Change]:
    """Read the change events of Debezium's connectors, as records of type `Change`, for `upserts`.

    - `codec`: how the events are encoded: `codecs.json()`, the default, or `codecs.avro(registry=…)`. JSON can have
      schemas inside (`{"schema": …, "payload": …}`) or not.
    - `key`: how the keys of messages are encoded, if that differs.

    Snapshots (`op` is `r`) are changes too. A tombstone, a message without a value, is a delete. The columns of rows follow
    the table: after a schema change, later rows have other columns.

    A message whose key is null ends the run: without a key, changes of one row are in no order. Events that change no row,
    such as a truncation, are in the stream `broken`.
    """
    return Debezium(json() if codec is None else payload_codec(codec), None if key is None else payload_codec(key))


class Debezium(PayloadCodec[Change]):
    """The codec of Debezium's envelopes, inside of another codec."""

    name = "debezium"
    shape = Shape("record", Change)
    message_columns: ClassVar[tuple[str, ...]] = ("key", "timestamp")

    def __init__(self, codec: PayloadCodec[Fields], key: PayloadCodec[Fields] | None) -> None:
        """Take the codec of events and the codec of keys."""
        self._codec, self._key = codec, key or codec

    def decode(self, payload: bytes) -> Change:
        return self.decode_message(payload, ABSENT, ABSENT)

    def decode_message(self, payload: bytes | None, *columns: Any) -> Change:
        key, timestamp = columns
        event = None if payload is None else _payload(self._codec.decode(payload))
        if key is None:
            _refuse_without_key(event)
        fields = None if key is ABSENT else _payload(self._key.decode(key))
        if fields is not None and not isinstance(fields, dict):
            raise ValueError(f"the key of the message is {fields!r}, not the columns of a primary key")
        if event is None:
            if fields is None:
                raise ValueError("the payload is null, and the message has no key to delete")
            return Change("delete", "", None, key=fields, time=None if timestamp is ABSENT else timestamp)
        return _change(event, fields)

    def encode(self, columns: pa.RecordBatch) -> list[bytes]:
        raise ConfigError("the codec debezium reads change events and cannot write them; use codecs.json() or avro(…)")


def _payload(record: Any) -> Any:
    """Return the record without the schema that JSON converters of Kafka Connect put next to it."""
    return record["payload"] if isinstance(record, dict) and record.keys() == {"schema", "payload"} else record


def _change(event: Any, key: Fields | None) -> Change:
    operation = _OPERATIONS.get(event.get("op")) if isinstance(event, dict) else None
    if operation is None:
        _refuse(event)
    row, before = event.get("after"), event.get("before")
    for name, value in (("after", row), ("before", before)):
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{name} of the event is {type(value).__name__}, not a row with columns")
    if (row is None) != (operation == "delete"):
        raise ValueError(f"op is {event['op']}, and after is {'null' if row is None else 'a row'}")
    unchanged = () if row is None else tuple(name for name, value in row.items() if _is_unavailable(value))
    if unchanged:
        row = {name: value for name, value in row.items() if name not in unchanged}
    return Change(operation, _table(event), row, before, key, _time(event), unchanged)


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, str):
        return value in _UNAVAILABLE_TEXTS
    return isinstance(value, bytes | dict | list) and value in _UNAVAILABLE_VALUES


def _table(event: Fields) -> str:
    source = event.get("source") or {}
    place = source.get("schema") or source.get("db")
    return ".".join(part for part in (place, source.get("table")) if part)


def _time(event: Fields) -> datetime.datetime | None:
    """Return the time in the database or, if the event has none, the time at which the connector read the change."""
    milliseconds = (event.get("source") or {}).get("ts_ms") or event.get("ts_ms")
    return None if milliseconds is None else _EPOCH + datetime.timedelta(milliseconds=milliseconds)


def _refuse(event: Any) -> NoReturn:
    found = event.get("op") if isinstance(event, dict) else None
    if found == "t":
        raise ValueError(f"the table {_table(event)} was truncated, which is no change of a row: no row is deleted")
    if isinstance(event, dict) and "ddl" in event:
        raise ValueError("it is an event of the schema change topic; read the topics of the tables")
    raise ValueError(
        "it is not a change event: op must be c, u, d or r"
        + (f", not {found!r}" if found is not None else "; for rows without an envelope, use the codec inside alone")
    )


def _refuse_without_key(event: Any) -> NoReturn:
    table = _table(event) if isinstance(event, dict) else ""
    raise ConfigError(
        f"a Debezium event{f' of the table {table}' if table else ''} has no key, so the changes of one row are in no "
        "order: give the table a primary key, or set message.key.columns in the connector"
    )
