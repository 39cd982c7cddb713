"""What users test their programs with: without Spark and without a disk, unless asked for."""

from tidewheel.logic import Message
from tidewheel.sinks.collect import collect as CollectSink
from tidewheel.testing.clock import Clock
from tidewheel.testing.memory import MemoryRun, run_in_memory
from tidewheel.testing.tester import OperatorTester

__all__ = ["Clock", "CollectSink", "MemoryRun", "Message", "OperatorTester", "run_in_memory"]
