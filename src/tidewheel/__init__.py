"""Keyed, stateful stream programs in plain Python, run on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from tidewheel.job import Job
    from tidewheel.logic import Message, Output, StatefulLogic
    from tidewheel.operators.aggregates import count, max_, mean, min_, sum_
    from tidewheel.spark.read_state import read_state
    from tidewheel.stored import StoredJob
    from tidewheel.stream import KeyedStream, Stream
    from tidewheel.values import Row

__version__ = "0.1.0"

__all__ = [
    "Job",
    "KeyedStream",
    "Message",
    "Output",
    "Row",
    "StatefulLogic",
    "StoredJob",
    "Stream",
    "TidewheelError",
    "count",
    "max_",
    "mean",
    "min_",
    "read_state",
    "sum_",
]

_HOMES = {
    "Job": "job",
    "KeyedStream": "stream",
    "Message": "logic",
    "Output": "logic",
    "Row": "values",
    "StatefulLogic": "logic",
    "StoredJob": "stored",
    "Stream": "stream",
    "count": "operators.aggregates",
    "max_": "operators.aggregates",
    "mean": "operators.aggregates",
    "min_": "operators.aggregates",
    "read_state": "spark.read_state",
    "sum_": "operators.aggregates",
}
"""Where each public name is. Imported when first used: a look-up in stored state needs neither Arrow nor Spark."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
