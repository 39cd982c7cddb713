"""Tools for tests of programs: without Spark and without a disk, unless asked for."""

from typing import TYPE_CHECKING, Any

from tidewheel._cells.backends.memory import outage
from tidewheel._operators.logic import Message
from tidewheel._testing.clock import Clock
from tidewheel._testing.golden import golden
from tidewheel._testing.memory import MemoryRun
from tidewheel._testing.play import run_in_memory, run_script
from tidewheel._testing.result import Result
from tidewheel._testing.script import CELL, CRASH, EOF, PAUSE, RESCALE, ScriptedSource
from tidewheel._testing.tester import StepTester
from tidewheel.errors import _renamed

__all__ = [
    "CELL",
    "CRASH",
    "EOF",
    "PAUSE",
    "RESCALE",
    "Clock",
    "MemoryRun",
    "Message",
    "Result",
    "ScriptedSource",
    "StepTester",
    "golden",
    "outage",
    "run_in_memory",
    "run_script",
]

if not TYPE_CHECKING:
    # A type checker would accept any name.
    def __getattr__(name: str) -> Any:
        return _renamed(__name__, globals(), {"OperatorTester": "StepTester"}, name)
