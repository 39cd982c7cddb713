"""Records as messages: an address, which may contain columns, and data.

The tasks encode and stage the messages, so that the driver only sends them.
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
from tidewheel.errors import ConfigError, CorruptError, StepError

_COLUMN = re.compile(r"\{([^{}]*)\}")

Message = tuple[str, bytes]
"""Address and data."""


@dataclass(frozen=True)
class Form:
    """How a record becomes a message.

    `address` is a subject or a topic, in which `{user}` is replaced by the value of that column. The codec encodes the
    record as the data. `forbidden` has the characters that a value must not contain, because they are special in addresses.
    """

    address: str
    codec: PayloadCodec
    forbidden: str
    longest: int = 1000
    """The maximum number of bytes of an address."""
    largest: int | None = None
    """The maximum number of bytes of the data, if the server reports one."""

    @property
    def columns(self) -> list[str]:
        """The columns in the address."""
        return _COLUMN.findall(self.address)

    def pattern(self, wildcard: str) -> str:
        """Return the address with a wildcard for each column."""
        return _COLUMN.sub(lambda _: wildcard, self.address)

    def checked(self, what: str) -> Form:
        """Return the form; raise a `ConfigError` if the address is invalid."""
        fixed = _COLUMN.sub("", self.address)
        if not self.address or any(each in fixed for each in "{} \t\r\n") or "" in self.columns:
            raise ConfigError(
                f"{self.address!r} is not a valid {what}: it must not have blanks, and {{name}} in it is replaced by "
                "the column name"
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
    """Yield the messages of a publication without the first `skip`. The order is always the same."""
    for batch in published_batches(publication):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        rest = batch.slice(skip)
        skip = 0
        addresses = _staged_addresses(rest, form, publication) if form.columns else itertools.repeat(form.address)
        yield from zip(addresses, rest["data"].to_pylist(), strict=False)


def _staged_addresses(columns: pa.RecordBatch, form: Form, publication: Publication) -> list[str]:
    """Return the staged addresses. Raise an error for an address that the form cannot produce, which may be an attack."""
    value = f"[^{re.escape(form.forbidden)}\\s]+"
    pattern = re.compile(value.join(map(re.escape, _COLUMN.sub("{}", form.address).split("{}"))))
    addresses: list[str] = columns["address"].to_pylist()
    for address in set(addresses):
        if not isinstance(address, str) or not pattern.fullmatch(address):
            raise CorruptError(
                f"sink {publication.sink!r}: a staged message has the address {address!r}, which {form.address!r} "
                "cannot produce; "
                "another program has written to the state store"
            )
    return addresses


def count(publication: Publication) -> int:
    """Return the number of messages of a publication."""
    return sum(file.rows for file in staged_files(publication))


def _data(columns: pa.RecordBatch, form: Form, sink: str) -> list[bytes]:
    try:
        data = form.codec.encode(columns)
    except ConfigError as error:
        raise StepError(f"sink {sink!r}: {error}") from error
    if None in data:
        raise StepError(
            f"sink {sink!r}: a record has no data to send: the input of the codec {form.codec.name} is null"
        )
    return data


def check_size(data: list[bytes], largest: int | None, sink: str) -> None:
    """Raise an error for a message that the server would reject after the commit."""
    size = max(map(len, data), default=0)
    if largest is not None and size > largest:
        raise StepError(f"sink {sink!r}: a message has {size:,} bytes; the server accepts at most {largest:,}")


def _addresses(columns: pa.RecordBatch, form: Form, sink: str) -> list[str]:
    names = columns.schema.names
    if lacking := [name for name in form.columns if name not in names]:
        raise StepError(
            f"sink {sink!r}: {form.address!r} names the column {', '.join(lacking)}; the records have "
            f"{', '.join(names)}"
        )
    values = [[str(value) for value in columns[name].to_pylist()] for name in form.columns]
    for name, column in zip(form.columns, values, strict=True):
        for value in set(column):
            if not value or any(each in form.forbidden or each.isspace() for each in value):
                raise StepError(
                    f"sink {sink!r}: the value {shortened(value, 100)} of {name} cannot be used in {form.address!r}: "
                    "it must not "
                    f"be empty or contain blanks or one of {' '.join(form.forbidden)}"
                )
    template = _COLUMN.sub("{}", form.address)
    addresses = [template.format(*each) for each in zip(*values, strict=True)]
    for address in addresses:
        if len(address.encode()) > form.longest or not address.isprintable():
            raise StepError(
                f"sink {sink!r}: {shortened(address, 100)} is not a valid address: it must have at most "
                f"{form.longest} bytes and no "
                "control characters"
            )
    return addresses
