"""What a delta sink does with its table: open it, make it, and add a batch to it in one commit.

A commit of a Delta table carries the number of the batch under the sink's name, its *transaction identifier*. Of two commits
with the same name that know nothing of each other only one succeeds, so whoever comes second looks again, and finds the batch
in there.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from tidewheel._connectors.marker import Marker, Outrun, digest
from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel._storage.file import FileStore
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable, OperatorError, TidewheelError

if TYPE_CHECKING:
    from deltalake import DeltaTable

ADDING = faults.declare("delta.adding", "a delta sink's table is open, and the batch is not in it")
ADDED = faults.declare("delta.added", "a delta sink's batch is committed to its table, nobody knows yet")

_TRIES = 10
_ROW_GROUP = 65_536
"""How many rows the Delta client gathers in memory before it writes them."""
_LOOK_BACK = 200
_NOTE = "tidewheel"
_TERMINAL = re.compile(r"\x1b\[[0-9;]*m|↳")
_AWAY = re.compile(r"error sending request|[Cc]onnect|timed out|dns|status code: 5|50[0-9] ")
_DENIED = re.compile(r"40[13] |privileges|[Cc]redential")

T = TypeVar("T")


class _BatchNote(msgspec.Struct, frozen=True):
    """What a commit says of itself in the table's history."""

    sink: str
    sequence: int
    digest: int


def client() -> ModuleType:
    """Return deltalake, or say how to get it."""
    try:
        import deltalake
    except ImportError as error:
        raise ConfigError("a delta sink needs deltalake: pip install 'tidewheel[delta]'") from error
    return deltalake


@dataclass(frozen=True)
class TableLocation:
    """Where a table is, and how the Delta client gets there. Credentials are in the environment."""

    url: str

    def resolved(self) -> tuple[str, dict[str, str]]:
        """Return the place and the options as the Delta client takes them."""
        if "://" not in self.url or self.url.startswith("file:"):
            return FileStore.from_url(self.url).root, {}
        from tidewheel._storage.remote import settings

        place, options, retry_s = settings(self.url)
        # The client gives up by whichever comes first, the number or the time.
        retries = {"max_retries": "1000", "retry_timeout": f"{retry_s:g}s"}
        return place, {"conditional_put": "etag", **retries, **{name: _text(value) for name, value in options.items()}}

    def open(self, who: str) -> DeltaTable | None:
        """Return the table as it is now, None if there is none."""
        deltalake = client()
        place, options = self.resolved()
        if not options and not os.path.isdir(f"{place}/_delta_log"):
            return None

        def look() -> DeltaTable | None:
            try:
                table: DeltaTable = deltalake.DeltaTable(place, storage_options=options)
            except deltalake.exceptions.TableNotFoundError:
                return None
            return table

        return self.explained(who, look)

    def create(self, who: str, schema: pa.Schema, partition_by: tuple[str, ...]) -> DeltaTable:
        """Make the table, unless somebody has; return it."""
        deltalake = client()
        place, options = self.resolved()
        with contextlib.suppress(Outrun):  # Whoever came first has made it.
            self.explained(
                who,
                lambda: deltalake.DeltaTable.create(
                    place, schema, mode="ignore", partition_by=list(partition_by), storage_options=options
                ),
            )
        table = self.open(who)
        assert table is not None
        return table

    def add(
        self,
        table: DeltaTable,
        schema: pa.Schema,
        rows: Callable[[], Iterator[pa.RecordBatch]],
        publication: Publication,
    ) -> None:
        """Add a batch, unless it is there already; all of it or nothing. The rows are gone through anew for each try."""
        deltalake = client()
        who, name = f"sink {publication.sink!r}", name_of(publication)
        note = _BatchNote(name, publication.sequence, digest(publication))
        properties = deltalake.CommitProperties(
            custom_metadata={_NOTE: msgspec.json.encode(note).decode()},
            app_transactions=[
                deltalake.Transaction(name, publication.sequence),
                deltalake.Transaction(_digest_name(name), note.digest),
            ],
        )
        for _ in range(_TRIES):
            if _is_there(table, publication):
                return
            faults.point(ADDING)
            feed = _Feed(rows())
            write = functools.partial(
                deltalake.write_deltalake,
                table,
                pa.RecordBatchReader.from_batches(schema, feed),
                mode="append",
                writer_properties=deltalake.WriterProperties(compression="SNAPPY", max_row_group_size=_ROW_GROUP),
                commit_properties=properties,
            )
            try:
                self.explained(who, write)
            except Outrun:
                # Whoever it was, it may have been ourselves: a commit whose answer was lost.
                self.explained(who, table.update_incremental)
                continue
            except TidewheelError:
                if feed.error is not None:
                    raise feed.error from None
                raise
            faults.point(ADDED)
            return
        raise ConnectorUnavailable(
            f"{who}: the Delta table at {self.url} changed {_TRIES} times while the output was added; it is committed, and the "
            "next start adds it"
        )

    def explained(self, who: str, work: Callable[[], T]) -> T:
        """Do work, and turn the Delta client's errors into ours."""
        errors = client().exceptions
        try:
            return work()
        except errors.TableNotFoundError:
            raise ConnectorError(f"{who}: there is no Delta table at {self.url}") from None
        except errors.CommitFailedError as error:
            raise Outrun(f"{who}: {_line(error)}") from None
        except Exception as error:
            text = _line(error)
        if _DENIED.search(text):
            raise ConfigError(
                f"{who}: the store of the Delta table at {self.url} refuses us: {text}. Set the credentials in the environment "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or your vendor's)"
            )
        if _AWAY.search(text):
            raise ConnectorUnavailable(
                f"{who}: the store of the Delta table at {self.url} is away: {text}. Nothing committed is lost: start again when "
                "it is back, and the output is published"
            )
        raise OperatorError(
            f"{who}: the Delta table at {self.url} refuses the output: {text}. Nothing committed is lost: correct the table and "
            "start again"
        )


class _Feed:
    """Rows for the Delta client, which turns whatever goes wrong in here into an error of its own."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self.error: Exception | None = None
        """What went wrong with the rows."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows
        except Exception as error:
            self.error = error
            raise


def name_of(publication: Publication) -> str:
    """Return the sink's name in the table's transactions."""
    return f"tidewheel:{publication.job}:{publication.sink}"


def _digest_name(name: str) -> str:
    """Return the name under which a table keeps the digest of the sink's newest batch, however long ago that was."""
    return f"{name}:digest"


def _is_there(table: DeltaTable, publication: Publication) -> bool:
    name = name_of(publication)
    newest = table.transaction_version(name)
    if newest is None or newest < publication.sequence:
        return False
    if newest == publication.sequence and (known := table.transaction_version(_digest_name(name))) is not None:
        return Marker({newest: known}).has(publication)
    notes = [
        msgspec.json.decode(commit[_NOTE], type=_BatchNote) for commit in table.history(_LOOK_BACK) if _NOTE in commit
    ]
    published = {each.sequence: each.digest for each in notes if each.sink == name}
    return Marker({newest: -1, **published}).has(publication)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line(error: Exception) -> str:
    """Return what the client says, on one line of a readable length."""
    return " ".join(_TERMINAL.sub("", str(error)).split())[:400]
