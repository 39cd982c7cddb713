"""Background threads: unexpected errors are kept and reported, and the work continues or ends as its owner chose."""

from __future__ import annotations

import threading

from support.waiting import SOON
from tidewheel._core.threads import BackgroundThread


def test_an_unexpected_exception_is_reported_and_the_thread_continues():
    reported, done = [], threading.Event()
    attempts = iter([ValueError("first"), AssertionError("second"), None])

    def work():
        if (error := next(attempts)) is not None:
            raise error
        done.set()

    thread = BackgroundThread(work, "test", lambda error: reported.append(str(error)) or "go on")
    thread.start()
    assert done.wait(SOON)
    thread.join()
    assert reported == ["first", "second"]
    assert str(thread.error) == "second"
    assert not thread.is_here


def test_a_thread_ends_on_request_and_keeps_its_exception():
    def work():
        raise TypeError("no")

    thread = BackgroundThread(work, "test", lambda error: "end")
    thread.start()
    thread.join(10)
    assert not thread.is_here
    assert isinstance(thread.error, TypeError)


def test_an_exception_of_the_owner_s_own_ends_the_thread_and_is_kept():
    def work():
        raise TypeError("first")

    def on_error(error):
        raise RuntimeError("second")

    thread = BackgroundThread(work, "test", on_error)
    thread.start()
    thread.join(10)
    assert isinstance(thread.error, RuntimeError)
    assert isinstance(thread.error.__context__, TypeError)


def test_work_that_always_fails_ends_when_it_is_joined():
    failed = threading.Event()

    def work():
        raise OSError("again")

    thread = BackgroundThread(work, "test", lambda error: failed.set() or "go on")
    thread.start()
    assert failed.wait(SOON)
    thread.join(10)
    assert not thread.is_here


def test_joining_before_the_start_or_from_within_does_nothing():
    done = threading.Event()

    def work():
        thread.join()
        done.set()

    thread = BackgroundThread(work, "test", lambda error: "end")
    thread.join()
    thread.start()
    assert done.wait(SOON)
