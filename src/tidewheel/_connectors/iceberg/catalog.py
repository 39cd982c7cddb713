"""Find and create the table of an iceberg sink in its catalog, with errors that say what to do."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tidewheel._connectors.marker import Outrun
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError, ConnectorError, ConnectorUnavailable, StepError, TidewheelError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

T = TypeVar("T")

_SQLITE = "sqlite:///"
_DENIED = {"AuthorizationExpiredError", "ForbiddenError", "OAuthError", "UnauthorizedError"}
_AWAY = {
    "CommitStateUnknownException",
    "OperationalError",
    "ServerError",
    "ServiceUnavailableError",
    "TooManyRequestsError",
    "WaitingForLockException",
}
"""Errors of the client by name: those of requests and SQLAlchemy can only be imported if these are installed."""

_CREATED = {"commit.manifest-merge.enabled": "true"}
"""Properties of a table that the sink creates: otherwise each commit would leave a manifest for ever."""


def client() -> ModuleType:
    """Import pyiceberg, or raise an error that says how to install it."""
    try:
        import pyiceberg.catalog
    except ImportError as error:
        raise ConfigError("an iceberg sink needs pyiceberg: pip install 'tidewheel[iceberg]'") from error
    return pyiceberg


@dataclass(frozen=True)
class TableName:
    """A table and its catalog: the name of a catalog that pyiceberg is configured with, or properties."""

    table: str
    catalog: str
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @staticmethod
    def of(table: str, catalog: str | Mapping[str, str]) -> TableName:
        """Check the arguments of a user."""
        if not all(table.split(".")) or "." not in table:
            raise ConfigError(f"an iceberg sink needs a table with its namespace, such as 'shop.orders', not {table!r}")
        if isinstance(catalog, str):
            return TableName(table, catalog)
        properties = dict(catalog)
        uri = properties.get("uri", "")
        if uri.startswith(_SQLITE) and uri != _SQLITE:
            # Tasks and a driver that changes its working directory must find the same file.
            properties["uri"] = _SQLITE + os.path.abspath(uri.removeprefix(_SQLITE))
        return TableName(table, properties.pop("name", "default"), tuple(sorted(properties.items())))

    def __str__(self) -> str:
        """Return the table and its catalog, without credentials."""
        given = dict(self.properties)
        where = given.get("warehouse") or given.get("uri")
        return f"{self.table} in the catalog {self.catalog if where is None else Url(where)}"

    def load(self, who: str) -> Table | None:
        """Return the current table; None if there is none."""
        exceptions = client().exceptions

        def look() -> Table | None:
            try:
                return _catalog(self.catalog, self.properties).load_table(self.table)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                return None

        return self.explained(who, look)

    def create(self, who: str, columns: pa.Schema, partition_by: tuple[str, ...]) -> Table:
        """Create the table, unless it exists; return it."""
        exceptions = client().exceptions
        namespace = self.table.rpartition(".")[0]

        def create() -> Table:
            catalog = _catalog(self.catalog, self.properties)
            catalog.create_namespace_if_not_exists(namespace)
            created_by_another = (exceptions.TableAlreadyExistsError, exceptions.CommitFailedException)
            with (
                contextlib.suppress(*created_by_another),
                catalog.create_table_transaction(self.table, columns, properties=_CREATED) as creating,
                creating.update_spec() as spec,
            ):
                for name in partition_by:
                    spec.add_identity(name)
            return catalog.load_table(self.table)

        return self.explained(who, create)

    def explained(self, who: str, work: Callable[[], T]) -> T:
        """Convert errors of the client to errors of `tidewheel.errors`."""
        exceptions = client().exceptions
        try:
            return work()
        except TidewheelError:
            raise
        except (exceptions.CommitFailedException, exceptions.ValidationException) as error:
            raise Outrun(f"{who}: {_line(error)}") from None
        except exceptions.NoSuchTableError:
            raise ConnectorError(f"{who}: there is no Iceberg table {self}") from None
        except (OSError, pa.ArrowException) as error:
            kind, text, away = type(error).__name__, self._safe(error), isinstance(error, OSError)
        except Exception as error:
            kind, text = type(error).__name__, self._safe(error)
            away = kind in _AWAY
        if kind in _DENIED:
            raise ConfigError(
                f"{who}: the catalog of the Iceberg table {self} denies access: {text}. Correct the credentials in the "
                "properties of the catalog"
            )
        if kind == "ValidationError" and "TableMetadata" in text:
            raise ConfigError(
                f"{who}: the installed pyiceberg cannot read the Iceberg table {self}: {text}. Nothing committed is lost: "
                "upgrade pyiceberg, or write to another table, and start again"
            )
        if away:
            raise ConnectorUnavailable(
                f"{who}: the catalog or the store of the Iceberg table {self} is unavailable: {text}. Nothing committed "
                "is lost: start again when it is available, and the output is published"
            )
        raise StepError(
            f"{who}: the Iceberg table {self} rejects the output: {text}. Nothing committed is lost: correct the table "
            "and start again"
        )

    def _safe(self, error: Exception) -> str:
        """Return the message of the client on one line of limited length, without the values of properties."""
        text = _line(error)
        for name, value in self.properties:
            if name not in ("type", "warehouse") and len(value) > 3:
                text = text.replace(value, f"({name})")
        return text


@functools.lru_cache(maxsize=16)
def _catalog(name: str, properties: tuple[tuple[str, str], ...]) -> Catalog:
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(name, **dict(properties))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"the catalog {name!r} of an iceberg sink is not configured: {_line(error)}. Pass its properties, such as "
            'catalog={"type": "rest", "uri": "http://localhost:8181"}, or describe it in .pyiceberg.yaml'
        ) from None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
