"""Row: a record whose columns are attributes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any


class Row(tuple[Any, ...]):
    """A record with one attribute per column, also accessible by name as `row["user"]`; otherwise a tuple.

    This is the default of most sources; or declare `type=Row`.

    >>> click = row_class(("user", "amount"))("ada", 3)
    >>> click.user, click["amount"]
    ('ada', 3)
    """

    __slots__ = ()
    _fields: tuple[str, ...]
    _columns: tuple[str, ...]
    """The names of its columns, including those that are not Python identifiers."""

    def __getattr__(self, name: str) -> Any:
        """Raise an error that lists the columns.

        Type checkers accept any attribute, because columns are known only at run time.
        """
        raise AttributeError(f"there is no column {name!r}; there are {', '.join(self._columns)}")

    def __getitem__(self, at: Any) -> Any:
        """Return a column by its name or, like any tuple, by its position."""
        if isinstance(at, str):
            try:
                at = self._columns.index(at)
            except ValueError:
                raise KeyError(f"there is no column {at!r}; there are {', '.join(self._columns)}") from None
        return tuple.__getitem__(self, at)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._columns, tuple(self))


def _restore(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_class(names)(*values)


def rows_of(names: tuple[str, ...], lists: Sequence[list[Any]], count: int) -> list[Row]:
    """Return `count` rows from the values of each column."""
    kind = row_class(names)
    if not names:
        return [kind()] * count
    # Bypass the class's own constructor, whose Python code takes most of the time.
    return list(map(partial(tuple.__new__, kind), zip(*lists, strict=True)))


@lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """Return the class of rows with these columns: always the same class for the same names in one process.

    A column that is not a Python identifier has an attribute named by its position, such as `_1`; it keeps its name
    when the row becomes columns again.
    """
    base = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    return type(
        "Row",
        (base, Row),
        {"__slots__": (), "__reduce__": Row.__reduce__, "_columns": names},
    )
