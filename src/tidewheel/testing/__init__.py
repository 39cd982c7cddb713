"""What users test their programs with: without Spark and without a disk, unless asked for."""

from tidewheel.logic import Message
from tidewheel.sinks.collect import collect as CollectSink
from tidewheel.testing.clock import Clock
from tidewheel.testing.golden import golden
from tidewheel.testing.memory import MemoryRun
from tidewheel.testing.play import run_in_memory, run_script
from tidewheel.testing.result import Result
from tidewheel.testing.script import CRASH, EOF, PAUSE, RESCALE, ScriptedSource
from tidewheel.testing.tester import OperatorTester

__all__ = [
    "CRASH",
    "EOF",
    "PAUSE",
    "RESCALE",
    "Clock",
    "CollectSink",
    "MemoryRun",
    "Message",
    "OperatorTester",
    "Result",
    "ScriptedSource",
    "golden",
    "run_in_memory",
    "run_script",
]
