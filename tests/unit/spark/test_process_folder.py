"""The folders of a process."""

import contextlib
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

from tidewheel._spark.process_folder import process_folder


def test_threads_that_ask_at_once_get_the_same_folder(monkeypatch):
    made, both = tempfile.TemporaryDirectory, threading.Barrier(2, timeout=0.2)

    def slowly(*args, **named):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()  # The other comes here too, if nothing keeps it.
        return made(*args, **named)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", slowly)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(process_folder, ["test"] * 2)
    assert one == other
    assert one.is_dir()


def test_each_use_has_its_own_folder():
    assert process_folder("test-one") != process_folder("test-other")
