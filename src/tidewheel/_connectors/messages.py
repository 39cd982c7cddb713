"""Records as messages: an address, which may be made of columns, and data.

The tasks make the messages and stage them, so that the driver has nothing to do but send.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec
from tidewheel._connectors.sink import Publication, SinkPartition, Staging
from tidewheel._connectors.staging import StagedBatches, published_batches, staged_files
from tidewheel._core.text import shortened
from tidewheel.errors import ConfigError, CorruptError, OperatorError

_COLUMN = re.compile(r"\{([^{}]*)\}")

Message = tuple[str, bytes]
"""Address and data."""


@dataclass(frozen=True)
class Form:
    """How a record becomes a message.

    `address` is a subject or a topic, in which `{user}` stands for the value of that column. The data are what the codec makes
    of the record. `forbidden` are the characters that a value must not bring into an address, for there they mean something.
    """

    address: str
    codec: PayloadCodec
    forbidden: str
    longest: int = 1000
    """How many bytes an address may have."""
    largest: int | None = None
    """How many bytes the data may have, where the server has told."""

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
        self._form, self._sink = form, staging.sink
        self._staged = StagedBatches(staging)

    def write(self, columns: pa.RecordBatch) -> None:
        if columns.num_rows:
            form = self._form
            data = _data(columns, form, self._sink)
            check_size(data, form.largest, self._sink)
            staged = {"data": pa.array(data, pa.binary())}
            if form.columns:
                staged["address"] = pa.array(_addresses(columns, form, self._sink), pa.string())
            self._staged.write(pa.RecordBatch.from_pydict(staged))

    def prepare(self) -> bytes | None:
        return self._staged.prepare()


def messages(publication: Publication, form: Form, skip: int = 0) -> Iterator[Message]:
    """Give the messages of a publication in their order, which is always the same, without the first `skip`."""
    for batch in published_batches(publication):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        rest = batch.slice(skip)
        skip = 0
        addresses = _staged_addresses(rest, form, publication) if form.columns else itertools.repeat(form.address)
        yield from zip(addresses, rest["data"].to_pylist(), strict=False)


def _staged_addresses(columns: pa.RecordBatch, form: Form, publication: Publication) -> list[str]:
    """Return the staged addresses, or refuse those that the form cannot have made: another's subject may mean a lot there."""
    value = f"[^{re.escape(form.forbidden)}\\s]+"
    pattern = re.compile(value.join(map(re.escape, _COLUMN.sub("{}", form.address).split("{}"))))
    addresses: list[str] = columns["address"].to_pylist()
    for address in set(addresses):
        if not isinstance(address, str) or not pattern.fullmatch(address):
            raise CorruptError(
                f"sink {publication.sink!r}: a staged message is for {address!r}, which cannot come of {form.address!r}; "
                "something else has written to the state store"
            )
    return addresses


def count(publication: Publication) -> int:
    """Return how many messages a publication has."""
    return sum(file.rows for file in staged_files(publication))


def _data(columns: pa.RecordBatch, form: Form, sink: str) -> list[bytes]:
    try:
        data = form.codec.encode(columns)
    except ConfigError as error:
        raise OperatorError(f"sink {sink!r}: {error}") from error
    if None in data:
        raise OperatorError(
            f"sink {sink!r}: a record has nothing to send: what the codec {form.codec.name} takes is null"
        )
    return data


def check_size(data: list[bytes], largest: int | None, sink: str) -> None:
    """Refuse a message that the server would refuse when it is published, after its commit."""
    size = max(map(len, data), default=0)
    if largest is not None and size > largest:
        raise OperatorError(f"sink {sink!r}: a message has {size:,} bytes, and the server takes {largest:,} at most")


def _addresses(columns: pa.RecordBatch, form: Form, sink: str) -> list[str]:
    names = columns.schema.names
    if lacking := [name for name in form.columns if name not in names]:
        raise OperatorError(
            f"sink {sink!r}: {form.address!r} names the column {', '.join(lacking)}; the records have {', '.join(names)}"
        )
    values = [[str(value) for value in columns[name].to_pylist()] for name in form.columns]
    for name, column in zip(form.columns, values, strict=True):
        for value in set(column):
            if not value or any(each in form.forbidden or each.isspace() for each in value):
                raise OperatorError(
                    f"sink {sink!r}: the value {shortened(value, 100)} of {name} cannot be part of {form.address!r}: it must not "
                    f"be empty, nor have blanks or one of {' '.join(form.forbidden)}"
                )
    template = _COLUMN.sub("{}", form.address)
    addresses = [template.format(*each) for each in zip(*values, strict=True)]
    for address in addresses:
        if len(address.encode()) > form.longest or not address.isprintable():
            raise OperatorError(
                f"sink {sink!r}: {shortened(address, 100)} cannot be an address: it has at most {form.longest} bytes, and no "
                "control characters"
            )
    return addresses
