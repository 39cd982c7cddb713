"""Keyed, stateful stream programs in plain Python, run on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidewheel._subjects import public_modules
from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from tidewheel import agg as agg
    from tidewheel import cells as cells
    from tidewheel import checkpoints as checkpoints
    from tidewheel import codecs as codecs
    from tidewheel import connectors as connectors
    from tidewheel import errors as errors
    from tidewheel import fleet as fleet
    from tidewheel import sinks as sinks
    from tidewheel import sources as sources
    from tidewheel import tables as tables
    from tidewheel import testing as testing
    from tidewheel._cells.live import JobCell
    from tidewheel._checkpoint.tools.state_reader import Found
    from tidewheel._engine.job_status import JobStatus
    from tidewheel._operators.aggregates.functions import count, max_, mean, min_, sum_
    from tidewheel._operators.joins.join import Joined
    from tidewheel._operators.keyed.match import Match, Pattern
    from tidewheel._operators.keyed.ttl_map import ExpiringMap
    from tidewheel._operators.logic import Message, Output, StatefulLogic
    from tidewheel._operators.stateless.map_async import idempotency_key
    from tidewheel._operators.windows.window_result import WindowResult
    from tidewheel._program.job import Job
    from tidewheel._program.keyed_stream import KeyedStream
    from tidewheel._program.running import Run, RunStatus
    from tidewheel._program.side_outputs import (
        DecodedStream,
        KeyedDecodedStream,
        KeyedTimedStream,
        TimedStream,
        WindowedStream,
    )
    from tidewheel._program.stored_job import StoredJob
    from tidewheel._program.stream import Stream
    from tidewheel._spark.options import RunOptions
    from tidewheel._spark.progress import BatchProgress, RunResult
    from tidewheel._spark.read_state import read_state
    from tidewheel._state.timers import Timer
    from tidewheel._time.windows import counted, session, sliding, triggered, tumbling
    from tidewheel._values import Row

__version__ = "0.2.0"

__all__ = [
    "BatchProgress",
    "DecodedStream",
    "ExpiringMap",
    "Found",
    "Job",
    "JobCell",
    "JobStatus",
    "Joined",
    "KeyedDecodedStream",
    "KeyedStream",
    "KeyedTimedStream",
    "Match",
    "Message",
    "Output",
    "Pattern",
    "Row",
    "Run",
    "RunOptions",
    "RunResult",
    "RunStatus",
    "StatefulLogic",
    "StoredJob",
    "Stream",
    "TidewheelError",
    "TimedStream",
    "Timer",
    "WindowResult",
    "WindowedStream",
    "agg",
    "cells",
    "checkpoints",
    "codecs",
    "connectors",
    "count",
    "counted",
    "errors",
    "fleet",
    "idempotency_key",
    "max_",
    "mean",
    "min_",
    "read_state",
    "session",
    "sinks",
    "sliding",
    "sources",
    "sum_",
    "tables",
    "testing",
    "triggered",
    "tumbling",
]

_HOMES = {
    "BatchProgress": "_spark.progress",
    "DecodedStream": "_program.side_outputs",
    "ExpiringMap": "_operators.keyed.ttl_map",
    "Found": "_checkpoint.tools.state_reader",
    "Job": "_program.job",
    "JobCell": "_cells.live",
    "JobStatus": "_engine.job_status",
    "Joined": "_operators.joins.join",
    "KeyedDecodedStream": "_program.side_outputs",
    "KeyedStream": "_program.keyed_stream",
    "KeyedTimedStream": "_program.side_outputs",
    "Match": "_operators.keyed.match",
    "Message": "_operators.logic",
    "Output": "_operators.logic",
    "Pattern": "_operators.keyed.match",
    "Row": "_values",
    "Run": "_program.running",
    "RunOptions": "_spark.options",
    "RunResult": "_spark.progress",
    "RunStatus": "_program.running",
    "StatefulLogic": "_operators.logic",
    "StoredJob": "_program.stored_job",
    "Stream": "_program.stream",
    "TimedStream": "_program.side_outputs",
    "Timer": "_state.timers",
    "WindowResult": "_operators.windows.window_result",
    "WindowedStream": "_program.side_outputs",
    "count": "_operators.aggregates.functions",
    "counted": "_time.windows",
    "idempotency_key": "_operators.stateless.map_async",
    "max_": "_operators.aggregates.functions",
    "mean": "_operators.aggregates.functions",
    "min_": "_operators.aggregates.functions",
    "read_state": "_spark.read_state",
    "session": "_time.windows",
    "sliding": "_time.windows",
    "sum_": "_operators.aggregates.functions",
    "triggered": "_time.windows",
    "tumbling": "_time.windows",
}
"""The module of each public name. Imported when first used: a look-up in stored state needs neither Arrow nor Spark."""


_MODULES = (
    *("agg", "cells", "checkpoints", "codecs", "connectors", "errors", "sinks", "sources", "tables", "testing"),
    *public_modules(),
)


if not TYPE_CHECKING:
    __all__ = [name for name in __all__ if name in _HOMES or name in _MODULES or name in globals()]

    # A type checker would take any name for one that is here.
    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
