"""Ctrl-C and SIGTERM: the first ends the run after its batch."""

from __future__ import annotations

import os
import signal

from tidewheel._spark.interrupts import Interrupts


class Run:
    def __init__(self):
        self.stopping = False

    def stop(self):
        self.stopping = True


def test_either_signal_stops_the_run_and_a_second_sigterm_changes_nothing(capsys):
    for number in (signal.SIGINT, signal.SIGTERM):
        run = Run()
        with Interrupts(run):
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
        assert run.stopping
        assert capsys.readouterr().err.count("stopping when the batch is committed") == 1


def test_afterwards_signals_do_what_they_did_before():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts(Run()):
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
