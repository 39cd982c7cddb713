"""Sources of reference tables for `Job.table`. Paths, DataFrames and functions work without these."""

from typing import TYPE_CHECKING, Any

from tidewheel._connectors.tables.files import files
from tidewheel._connectors.tables.sql import sql
from tidewheel._connectors.tables.table import Table, TableSource
from tidewheel._core.text import no_attribute
from tidewheel._subjects import added, load

if TYPE_CHECKING:
    from tidewheel._connectors.delta.reference_table import delta

__all__ = ["Table", "TableSource", "delta", "files", "sql"]

if not TYPE_CHECKING:  # To a type checker, a module with such a function would have every name.
    __all__ = [name for name in __all__ if name in globals() or name in added("tables")]

    def __getattr__(name: str) -> Any:
        if name in added("tables"):
            return globals().setdefault(name, load("tables", name))
        raise no_attribute(__name__, name, __all__)
