"""Records as messages: an address, which may be made of columns, and data.

The tasks make the messages and stage them, so that the driver has nothing to do but send.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from tidewheel.errors import ConfigError, OperatorError
from tidewheel.sinks.base import Publication, SinkPartition, Staging
from tidewheel.sinks.staged import StagedBatches, StagedRef, published_batches, records

_COLUMN = re.compile(r"\{([^{}]*)\}")
_encode = msgspec.json.Encoder().encode

Message = tuple[str, bytes]
"""Address and data."""


class Form(msgspec.Struct, frozen=True):
    """How a record becomes a message.

    `address` is a subject or a topic, in which `{user}` stands for the value of that column. The data are those of the
    column `data`, bytes or text, or the whole record as JSON. `forbidden` are the characters that a value must not bring into an
    address, for there they mean something.
    """

    address: str
    data: str | None
    forbidden: str

    @property
    def columns(self) -> list[str]:
        """The columns that an address is made of."""
        return _COLUMN.findall(self.address)

    def pattern(self, wildcard: str) -> str:
        """Return the address with a wildcard for each column."""
        return _COLUMN.sub(lambda _: wildcard, self.address)

    def checked(self, what: str) -> Form:
        """Return the form, or refuse an address that cannot be one."""
        fixed = _COLUMN.sub("", self.address)
        if not self.address or any(each in fixed for each in "{} \t\r\n") or "" in self.columns:
            raise ConfigError(
                f"{self.address!r} cannot be a {what}: it has no blanks, and {{name}} in it stands for the column name"
            )
        return self


class MessagePartition(SinkPartition):
    """A task's messages, staged in the job's store."""

    def __init__(self, form: Form, staging: Staging) -> None:
        """Begin with none."""
        self._form, self._sink = form, staging.sink
        self._staged = StagedBatches(staging)

    def write(self, columns: pa.RecordBatch) -> None:
        """Make messages of rows."""
        if columns.num_rows:
            form = self._form
            self._check(columns.schema.names)
            found = {"data": pa.array(_data(columns, form, self._sink), pa.binary())}
            if form.columns:
                found["address"] = pa.array(_addresses(columns, form, self._sink), pa.string())
            self._staged.write(pa.RecordBatch.from_pydict(found))

    def prepare(self) -> bytes | None:
        """Stage them."""
        return self._staged.prepare()

    def _check(self, names: list[str]) -> None:
        wanted = [*self._form.columns, *([self._form.data] if self._form.data is not None else [])]
        if lacking := [name for name in wanted if name not in names]:
            raise OperatorError(
                f"sink {self._sink!r}: there is no column {', '.join(lacking)}; the records have {', '.join(names)}"
            )


def messages(publication: Publication, form: Form, skip: int = 0) -> Iterator[Message]:
    """Give the messages of a publication in their order, which is always the same, without the first `skip`."""
    for batch in published_batches(publication.store, publication.tokens):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        rest = batch.slice(skip)
        skip = 0
        addresses = rest["address"].to_pylist() if form.columns else itertools.repeat(form.address)
        yield from zip(addresses, rest["data"].to_pylist(), strict=False)


def count(publication: Publication) -> int:
    """Return how many messages a publication has."""
    return sum(msgspec.msgpack.decode(token, type=StagedRef).rows for token in publication.tokens)


def _data(columns: pa.RecordBatch, form: Form, sink: str) -> list[bytes]:
    if form.data is None:
        return [_encode(record) for record in records(columns)]
    column = columns[form.data]
    if column.null_count or not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        found = f"{column.type}, {column.null_count} of them null" if column.null_count else f"{column.type}"
        raise OperatorError(
            f"sink {sink!r}: the column {form.data!r} must have bytes or text to send, and no nulls; it has {found}"
        )
    return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _addresses(columns: pa.RecordBatch, form: Form, sink: str) -> list[str]:
    values = [[str(value) for value in columns[name].to_pylist()] for name in form.columns]
    for name, column in zip(form.columns, values, strict=True):
        for value in set(column):
            if not value or any(each in form.forbidden or each.isspace() for each in value):
                raise OperatorError(
                    f"sink {sink!r}: the value {value!r} of {name} cannot be part of {form.address!r}: it must not be empty, "
                    f"nor have blanks or one of {' '.join(form.forbidden)}"
                )
    template = _COLUMN.sub("{}", form.address)
    return [template.format(*each) for each in zip(*values, strict=True)]
