"""Keyed, stateful stream programs in plain Python, run on Spark."""

from tidewheel.errors import TidewheelError
from tidewheel.job import Job
from tidewheel.logic import Message, Output, StatefulLogic
from tidewheel.operators.aggregates import count, max_, mean, min_, sum_
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
    "Stream",
    "TidewheelError",
    "count",
    "max_",
    "mean",
    "min_",
    "sum_",
]
