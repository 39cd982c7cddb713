"""Keyed, stateful stream programs in plain Python, run on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from tidewheel.job import Job
    from tidewheel.logic import Message, Output, StatefulLogic
    from tidewheel.operators.aggregates import count, max_, mean, min_, sum_
    from tidewheel.operators.join import Joined
    from tidewheel.operators.ttl_map import ExpiringMap
    from tidewheel.operators.window import WindowResult
    from tidewheel.spark.read_state import read_state
    from tidewheel.state.timers import Timer
    from tidewheel.stored import StoredJob
    from tidewheel.stream import KeyedStream, Stream, WindowedStream
    from tidewheel.time.windows import session, sliding, tumbling
    from tidewheel.values import Row

__version__ = "0.1.0"

__all__ = [
    "ExpiringMap",
    "Job",
    "Joined",
    "KeyedStream",
    "Message",
    "Output",
    "Row",
    "StatefulLogic",
    "StoredJob",
    "Stream",
    "TidewheelError",
    "Timer",
    "WindowResult",
    "WindowedStream",
    "count",
    "max_",
    "mean",
    "min_",
    "read_state",
    "session",
    "sliding",
    "sum_",
    "tumbling",
]

_HOMES = {
    "ExpiringMap": "operators.ttl_map",
    "Job": "job",
    "Joined": "operators.join",
    "KeyedStream": "stream",
    "Message": "logic",
    "Output": "logic",
    "Row": "values",
    "StatefulLogic": "logic",
    "StoredJob": "stored",
    "Stream": "stream",
    "Timer": "state.timers",
    "WindowResult": "operators.window",
    "WindowedStream": "stream",
    "count": "operators.aggregates",
    "max_": "operators.aggregates",
    "mean": "operators.aggregates",
    "min_": "operators.aggregates",
    "read_state": "spark.read_state",
    "session": "time.windows",
    "sliding": "time.windows",
    "sum_": "operators.aggregates",
    "tumbling": "time.windows",
}
"""Where each public name is. Imported when first used: a look-up in stored state needs neither Arrow nor Spark."""


_MODULES = ("cells", "sinks", "sources", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
