"""Arguments of `Job.run` in version 0.1. They work in this version, with a warning."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from tidewheel._spark.options import RunOptions
from tidewheel._spark.progress import BatchProgress
from tidewheel._time.duration import Duration
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OldArguments(TypedDict, total=False):
    """Deprecated arguments of `Job.run` and `Job.start`: give them in `RunOptions`."""

    bounded: bool
    trigger: Duration | None
    master: str | None
    restarts: int
    backoff: Duration
    take_over: bool
    allow_dropped_state: Collection[str]
    allow_dropped_source: Collection[str]
    drop_unpublished: Collection[str]
    local: str | None
    shared_state: bool
    spark: SparkSession | None
    conf: Mapping[str, str] | None
    progress: Callable[[BatchProgress], None] | None
    on_phase: Callable[[str | None], None] | None
    on_readers: Callable[[Mapping[str, str]], None] | None
    tick: Duration
    serve: int | None
    history: Duration | None
    metrics: int | str | None
    ready_within: Duration


def from_trigger(trigger: Duration | None, bounded: bool) -> dict[str, Any]:
    """Return `until` or `every` for the trigger of version 0.1.

    >>> from_trigger("available-now", False), from_trigger("5 s", False), from_trigger(None, True)
    ({'until': 'caught-up'}, {'every': '5 s'}, {'until': 'end'})
    """
    if bounded:
        if trigger not in (None, "available-now"):
            raise ConfigError("a bounded run reads all available data and ends: it takes no trigger")
        return {"until": "end"}
    if trigger in ("available-now", "once"):
        return {"until": "caught-up"}
    return {} if trigger in (None, "direct") else {"every": trigger}


def with_old_arguments(options: RunOptions, old: Mapping[str, Any], method: str) -> RunOptions:
    """Return options with deprecated arguments of a method added, and warn about them."""
    unknown = sorted(set(old) - OldArguments.__optional_keys__)
    if unknown:
        raise TypeError(
            f"Job.{method}() has no argument {unknown[0]!r}; further options are given as options=RunOptions(…)"
        )
    given = dict(old)
    new = from_trigger(given.pop("trigger", None), given.pop("bounded", False))
    rest = {name: value for name, value in given.items() if not (name == "conf" and value is None)}
    inside = f"options=RunOptions({', '.join(f'{name}=…' for name in rest)})" if rest else ""
    now = ", ".join(part for part in (*(f"{name}={value!r}" for name, value in new.items()), inside) if part)
    warnings.warn(
        f"Job.{method}({', '.join(f'{name}=…' for name in old)}) will be refused in the next version: write "
        f"{method}({now})",
        DeprecationWarning,
        stacklevel=4,
    )
    return dataclasses.replace(options, **new, **rest)
