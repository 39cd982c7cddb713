"""The table of a delta sink: open it, create it, and add a batch to it in one commit.

A commit of a Delta table has the number of the batch under the name of the sink, its *transaction identifier*. Of two
concurrent commits with the same name only one succeeds. The other writer reads the table again and finds the batch in it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
import pyarrow as pa

from tidewheel._connectors.delta.features import unsupported
from tidewheel._connectors.files.compaction import Compaction
from tidewheel._connectors.marker import Marker, Outrun, digest
from tidewheel._connectors.sink import Publication
from tidewheel._core import faults
from tidewheel._storage.file import FileStore
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable, StepError, TidewheelError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

Action: TypeAlias = "AddAction | RemoveAction"

ADDING = faults.declare("delta.adding", "a delta sink's table is open, and the batch is not in it")
ADDED = faults.declare("delta.added", "a delta sink's batch is committed to its table, and not confirmed yet")

_TRIES = 10
_LOOK_BACK = 200
_NOTE = "tidewheel"
_TERMINAL = re.compile(r"\x1b\[[0-9;]*m|↳")
_AWAY = re.compile(r"error sending request|[Cc]onnect|timed out|dns|status code: 5|50[0-9] ")
_DENIED = re.compile(r"40[13] |privileges|[Cc]redential")

T = TypeVar("T")


class _BatchNote(msgspec.Struct, frozen=True):
    """The metadata of a commit in the history of the table."""

    sink: str
    sequence: int
    digest: int


def client() -> ModuleType:
    """Import deltalake, or raise an error that says how to install it."""
    try:
        import deltalake
    except ImportError as error:
        raise ConfigError("a delta sink needs deltalake: pip install 'tidewheel[delta]'") from error
    return deltalake


@dataclass(frozen=True)
class TableLocation:
    """The URL of a table and the options of the Delta client. Credentials are in the environment."""

    url: str

    def resolved(self) -> tuple[str, dict[str, str]]:
        """Return the URL and the options for the Delta client."""
        if "://" not in self.url or self.url.startswith("file:"):
            return FileStore.from_url(self.url).root, {}
        from tidewheel._storage.remote import settings

        place, options, retry_s = settings(self.url)
        # The client stops retrying at the number of tries or at the time limit, whichever comes first.
        retries = {"max_retries": "1000", "retry_timeout": f"{retry_s:g}s"}
        return place, {"conditional_put": "etag", **retries, **{name: _text(value) for name, value in options.items()}}

    def open(self, who: str) -> DeltaTable | None:
        """Return the current table; None if there is none."""
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
        """Create the table, unless it exists; return it."""
        deltalake = client()
        place, options = self.resolved()
        with contextlib.suppress(Outrun):  # Another writer has created it.
            self.explained(
                who,
                lambda: deltalake.DeltaTable.create(
                    place, schema, mode="ignore", partition_by=list(partition_by), storage_options=options
                ),
            )
        table = self.open(who)
        assert table is not None
        return table

    def add_columns(self, table: DeltaTable, who: str, columns: pa.Schema) -> None:
        """Add the columns that the table does not have. Rows get them later, so doing this again is harmless."""
        deltalake = client()
        for _ in range(_TRIES):
            known = set(pa.schema(table.schema()).names)
            lacking = [field.with_nullable(True) for field in columns if field.name not in known]
            if not lacking:
                return
            fields = deltalake.Schema.from_arrow(pa.schema(lacking)).fields
            with contextlib.suppress(Outrun):
                self.explained(who, functools.partial(table.alter.add_columns, fields))
            self.explained(who, table.update_incremental)
        raise ConnectorUnavailable(
            f"{who}: the Delta table at {self.url} changed {_TRIES} times while columns were added; the output is "
            "committed, and the next start adds it"
        )

    def commit(
        self, table: DeltaTable, publication: Publication, change: Callable[[], list[Action]], *, merges: bool
    ) -> None:
        """Change the table in one commit with the marker of the batch, unless the table already has the batch.

        `change` returns what to change. It is called again if another writer has changed the table. If the change `merges`,
        any commit of another writer counts as such a change, since it may have added rows with the same keys.
        """
        deltalake = client()
        who, name = f"sink {publication.sink!r}", name_of(publication)
        note = _BatchNote(name, publication.sequence, digest(publication))
        properties = deltalake.CommitProperties(
            custom_metadata={_NOTE: msgspec.json.encode(note).decode()},
            max_commit_retries=0 if merges else None,
            app_transactions=[
                deltalake.Transaction(name, publication.sequence),
                deltalake.Transaction(_digest_name(name), note.digest),
            ],
        )
        for _ in range(_TRIES):
            if _is_there(table, publication):
                return
            self.check_features(table, who, StepError, merges=merges)
            faults.point(ADDING)
            try:
                self.explained(who, lambda: _add(table, change(), properties))
                self.explained(who, table.update_incremental)
            except Outrun:
                # The conflicting commit may be our own, if its response was lost.
                self.explained(who, table.update_incremental)
                continue
            faults.point(ADDED)
            return
        raise ConnectorUnavailable(
            f"{who}: the Delta table at {self.url} changed {_TRIES} times while the output was added; the output is "
            "committed, and the next start adds it"
        )

    def compact(self, target_bytes: int) -> Compaction:
        """Let the Delta client replace small files by larger ones, in one commit."""
        who = "the compaction"
        for _ in range(_TRIES):
            table = self.open(who)
            if table is None:
                raise ConfigError(f"there is no Delta table at {self.url}")
            with contextlib.suppress(Outrun):
                done = self.explained(who, functools.partial(table.optimize.compact, target_size=target_bytes))
                return Compaction(done["numFilesRemoved"], done["numFilesAdded"])
        raise ConnectorUnavailable(
            f"other writers replaced files of the Delta table at {self.url} {_TRIES} times while it was compacted; try again"
        )

    def compacted_at(self) -> float | None:
        """Return when the table was last compacted, in seconds since 1970; None if its recent commits do not say."""
        table = self.open("the compaction")
        commits = [] if table is None else self.explained("the compaction", lambda: table.history(_LOOK_BACK))
        times = [commit["timestamp"] / 1000 for commit in commits if commit.get("operation") == "OPTIMIZE"]
        return max(times, default=None)

    def check_features(self, table: DeltaTable, who: str, kind: type[TidewheelError], *, merges: bool) -> None:
        """Raise an error of this kind if the table demands something of its writers that the sink does not do."""
        protocol = table.protocol()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        fields = msgspec.json.decode(table.schema().to_json())["fields"]
        versions = (protocol.min_reader_version, protocol.min_writer_version)
        found = unsupported(versions, features, table.metadata().configuration, fields)
        if merges:
            found += [
                f"the property {name}"
                for name in ("delta.appendOnly", "delta.enableChangeDataFeed")
                if table.metadata().configuration.get(name) == "true"
            ]
        if found:
            raise kind(
                f"{who}: the Delta table at {self.url} rejects the output: it has {', '.join(found)}, which the sink does "
                "not support. Nothing committed is lost: remove that from the table, or write to another table, and "
                "start again"
            )

    def explained(self, who: str, work: Callable[[], T]) -> T:
        """Convert errors of the Delta client to errors of `tidewheel.errors`."""
        errors = client().exceptions
        try:
            return work()
        except TidewheelError:
            raise
        except errors.TableNotFoundError:
            raise ConnectorError(f"{who}: there is no Delta table at {self.url}") from None
        except errors.CommitFailedError as error:
            raise Outrun(f"{who}: {_line(error)}") from None
        except Exception as error:
            text = _line(error)
        if _DENIED.search(text):
            raise ConfigError(
                f"{who}: the store of the Delta table at {self.url} denies access: {text}. Set the credentials in "
                "the environment "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or your vendor's)"
            )
        if "Kernel error: Unsupported" in text:
            raise ConfigError(
                f"{who}: the installed deltalake cannot read the Delta table at {self.url}: {text}. Nothing committed is lost: "
                "upgrade deltalake, or write to another table, and start again"
            )
        if _AWAY.search(text):
            raise ConnectorUnavailable(
                f"{who}: the store of the Delta table at {self.url} is unavailable: {text}. Nothing committed is "
                "lost: start again when "
                "it is available, and the output is published"
            )
        raise StepError(
            f"{who}: the Delta table at {self.url} rejects the output: {text}. Nothing committed is lost: correct "
            "the table and "
            "start again"
        )


def _add(table: DeltaTable, actions: list[Action], properties: CommitProperties) -> None:
    """Add and remove files in one commit."""
    table.create_write_transaction(
        list(actions), "append", table.schema(), table.metadata().partition_columns, commit_properties=properties
    )


def name_of(publication: Publication) -> str:
    """Return the name of the sink in the transactions of the table."""
    return f"tidewheel:{publication.job}:{publication.sink}"


def _digest_name(name: str) -> str:
    """Return the name under which the table stores the digest of the newest batch of the sink."""
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
    """Return the message of the client on one line of limited length."""
    return " ".join(_TERMINAL.sub("", str(error)).split())[:400]
