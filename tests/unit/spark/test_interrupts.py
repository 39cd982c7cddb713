"""Ctrl-C, SIGTERM and SIGHUP: the first ends the run after its batch."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tidewheel._spark.interrupts import ENDING, Interrupts


class Run:
    def __init__(self, starting=False):
        self.stopping, self.starting = False, starting

    def stop(self):
        self.stopping = True


@pytest.fixture
def hangup():
    """SIGHUP as it is where nobody ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
def test_each_signal_stops_the_run_and_a_second_one_changes_nothing(capsys):
    for number in ENDING:
        run = Run()
        with Interrupts(run):
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
        assert run.stopping
        assert capsys.readouterr().err.count("stopping when the batch is committed") == 1


def test_while_a_run_starts_the_line_shows_its_phase(capsys):
    run = Run(starting=True)
    with Interrupts(run) as interrupts:
        # As Spark does when it starts in the main thread.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.take()
        os.kill(os.getpid(), signal.SIGINT)
    assert run.stopping
    assert "stopping before the start goes further" in capsys.readouterr().err


@pytest.mark.usefixtures("hangup")
def test_under_nohup_a_hangup_does_not_stop_the_run():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run = Run()
    with Interrupts(run):
        os.kill(os.getpid(), signal.SIGHUP)
    assert not run.stopping


@pytest.mark.usefixtures("hangup")
def test_a_terminal_that_is_gone_does_not_make_the_run_fail(monkeypatch):
    leader, terminal = os.openpty()
    run = Run()
    with os.fdopen(terminal, "w") as gone, Interrupts(run):
        monkeypatch.setattr(sys, "stderr", gone)
        os.close(leader)
        os.kill(os.getpid(), signal.SIGHUP)
    assert run.stopping


def test_afterwards_the_old_signal_handlers_are_back():
    before = [signal.getsignal(number) for number in ENDING]
    with Interrupts(Run()):
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in ENDING] == before
