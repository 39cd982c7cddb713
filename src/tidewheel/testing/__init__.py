"""What users test their programs with."""

from tidewheel.testing.memory import MemoryRun, run_in_memory

__all__ = ["MemoryRun", "run_in_memory"]
