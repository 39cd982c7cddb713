"""Reject values that a column would change silently: fractions of numbers, times of day, time zones."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel._values.records import field_of, optional_field

_WHOLE = {int, type(None)}


def check_whole(values: Iterable[Any], kind: pa.DataType) -> None:
    """Raise for a number with a fraction where an integer is declared, at any depth: Arrow would truncate it."""
    if pa.types.is_integer(kind):
        values = values if isinstance(values, list) else list(values)
        if not _WHOLE.issuperset(map(type, values)):
            for value in values:
                if isinstance(value, float | Decimal | np.floating) and value != value // 1:
                    raise pa.ArrowInvalid(f"{value!r} is not a whole number, but int is declared")
    elif pa.types.is_list(kind):
        check_whole(chain.from_iterable(filter(None, values)), kind.value_type)
    elif pa.types.is_map(kind):
        check_whole(_map_values(values), kind.item_type)
    elif pa.types.is_struct(kind):
        records = [each for each in values if each is not None]
        for field in kind:
            check_whole((field_of(each, field.name) for each in records), field.type)


def alike_times(values: Sequence[Any], kinds: Collection[type]) -> Sequence[Any]:
    """Return a column's dates and times as one kind of time, if there are several; `kinds` are the types of the values.

    A date becomes its midnight. If some times have a zone, those without one are taken as UTC, as in a column declared
    as `datetime`.
    """
    if datetime.datetime not in kinds:
        return values
    zones = {value.tzinfo is not None for value in values if isinstance(value, datetime.datetime)}
    if len(zones) == 1 and datetime.date not in kinds:
        return values
    zone = datetime.UTC if True in zones else None

    def alike(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=zone)
        return datetime.datetime.combine(value, datetime.time(), zone) if isinstance(value, datetime.date) else value

    return list(map(alike, values))


def check_times(values: Iterable[Any], kind: pa.DataType, name: str, *, declared: bool) -> None:
    """Raise for times that a column of this type would change, at any depth.

    Arrow truncates the time of day if a date comes first or is declared. If no type is declared, Arrow drops the zone
    of times that follow one without a zone.
    """
    if pa.types.is_date(kind):
        wrong = next((value for value in values if isinstance(value, datetime.datetime)), None)
        if wrong is not None:
            there = "date is declared" if declared else "there are dates too"
            raise TypeError(f"column {name!r} would lose the time of day of {wrong!r}: {there}")
    elif pa.types.is_timestamp(kind) and not declared:
        times = [value for value in values if value is not None]
        has_dates = not all(isinstance(value, datetime.datetime) for value in times)
        if has_dates or len({value.tzinfo is None for value in times}) > 1:
            both = "dates and times" if has_dates else "times with a time zone and times without one"
            raise TypeError(f"column {name!r} has {both}; make them all of one kind")
    elif pa.types.is_list(kind) and _has_times(kind):
        check_times(list(chain.from_iterable(filter(None, values))), kind.value_type, name, declared=declared)
    elif pa.types.is_map(kind) and _has_times(kind):
        check_times(list(_map_values(values)), kind.item_type, name, declared=declared)
    elif pa.types.is_struct(kind) and _has_times(kind):
        records = [each for each in values if each is not None]
        for field in kind:
            inside = [optional_field(each, field.name) for each in records]
            check_times(inside, field.type, f"{name}.{field.name}", declared=declared)


def _map_values(values: Iterable[Any]) -> Iterator[Any]:
    maps = (each.items() if isinstance(each, dict) else each for each in filter(None, values))
    return (item for each in maps for _, item in each)


def _has_times(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains dates or times."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return True
    return any(_has_times(kind.field(place).type) for place in range(kind.num_fields))
