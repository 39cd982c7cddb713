"""What users test their programs with: without Spark and without a disk, unless asked for."""

from tidewheel._cells.backends.memory import outage
from tidewheel._operators.logic import Message
from tidewheel._testing.clock import Clock
from tidewheel._testing.golden import golden
from tidewheel._testing.memory import MemoryRun
from tidewheel._testing.play import run_in_memory, run_script
from tidewheel._testing.result import Result
from tidewheel._testing.script import CELL, CRASH, EOF, PAUSE, RESCALE, ScriptedSource
from tidewheel._testing.tester import OperatorTester

__all__ = [
    "CELL",
    "CRASH",
    "EOF",
    "PAUSE",
    "RESCALE",
    "Clock",
    "MemoryRun",
    "Message",
    "OperatorTester",
    "Result",
    "ScriptedSource",
    "golden",
    "outage",
    "run_in_memory",
    "run_script",
]
