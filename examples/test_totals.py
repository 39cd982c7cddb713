"""Test a program in milliseconds, without Spark: its output, its state, and what crashes and rescaling do to it.

pytest examples/test_totals.py
"""

from totals import job

from tidewheel.testing import golden, run_in_memory

ORDERS = [{"user": "ada", "cents": 250}, {"user": "bob", "cents": 900}, {"user": "ada", "cents": 100}]


def test_the_output_has_the_total_after_each_order() -> None:
    """Pass records under the name of their source; the outputs are under the names of their sinks."""
    rows = run_in_memory(job, {"orders": ORDERS}).outputs["out"]
    assert [row["value"] for row in rows if row["user"] == "ada"] == [250, 350]


def test_the_state_has_the_total_of_each_user() -> None:
    """The state of a step is a dict under the name of the step."""
    assert run_in_memory(job, {"orders": ORDERS}).states["total"] == {"ada": 350, "bob": 900}


def test_crashes_and_rescaling_change_nothing() -> None:
    """`golden` repeats the run with random batches, crashes and rescaling, and compares output and state."""
    golden(job, {"orders": ORDERS * 10}, runs=3, seed=1)
