"""Cells in a folder: several processes, crashes at any step, notifications instead of polling."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from support.waiting import IN_TIME, SOON, eventually
from tidewheel import cells
from tidewheel._core import inotify
from tidewheel.cells import AccessRefused, Offline
from tidewheel.errors import ConfigError

COUNT = """
import sys
from tidewheel import cells
with cells.open(sys.argv[1]) as connection:
    writer = connection.writer("x", int)
    for _ in range(int(sys.argv[2])):
        version = writer.update(lambda value: (value or 0) + 1).version
        print(version, flush=True)
"""


def counting(folder, times, faults=""):
    return subprocess.Popen(
        [sys.executable, "-c", COUNT, str(folder), str(times)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TIDEWHEEL_FAULTS": faults},
        process_group=0,
    )


def test_processes_count_together_and_none_is_lost_when_one_is_killed(tmp_path):
    """One process dies in the middle of a command, between creating its record and looking back."""
    with cells.open(str(tmp_path)) as connection:
        reader = connection.reader("x", int)
        processes = [counting(tmp_path, 40), counting(tmp_path, 40), counting(tmp_path, 40, "chain.created=kill@7")]
        acknowledged = [[int(line) for line in process.communicate(timeout=SOON)[0].split()] for process in processes]
        assert [process.returncode for process in processes] == [0, 0, -signal.SIGKILL]
        assert len(acknowledged[2]) == 6
        versions = sorted(version for mine in acknowledged for version in mine)
        assert len(set(versions)) == len(versions) == 86
        assert reader.when.reaches(87, timeout=IN_TIME) == (87, 87), "the killed one's last was created, so it counts"


def test_a_killed_process_leaves_nothing_that_hinders_others(tmp_path):
    process = counting(tmp_path, 100_000)
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with cells.open(str(tmp_path)) as connection:
        before = connection.reader("x", int).read()
        assert connection.writer("x", int).update(lambda value: value + 1).value == before + 1


def test_a_quiet_cell_costs_nothing(tmp_path, monkeypatch):
    """No folder is listed and no record read while nothing changes."""
    with cells.open(str(tmp_path)) as connection:
        reader = connection.reader("x", int)
        looked, seen, listed = threading.Event(), [], []
        scan = os.scandir
        monkeypatch.setattr(os, "scandir", lambda path=".": listed.append(path) or scan(path))
        monkeypatch.setattr(connection._backend, "_reload", lambda *_: pytest.fail("read"))
        real = connection._backend._check_reachable

        def counted():
            real()
            seen.append(1)
            if len(seen) == 3:
                looked.set()

        monkeypatch.setattr(connection._backend, "_check_reachable", counted)
        assert looked.wait(SOON)
        assert reader.is_online
        # Other threads of this process may list folders of their own.
        assert not [path for path in listed if str(path).startswith(str(tmp_path))]


def test_when_the_system_loses_notices_everything_is_looked_at(tmp_path):
    with cells.open(str(tmp_path)) as connection, cells.open(str(tmp_path)) as other:
        reader = connection.reader("x", int)
        watch = connection._backend._watch
        watch.clear()
        version = other.writer("x", int).write(1)
        watch.wait = lambda timeout: time.sleep(0.01)
        assert reader.when.reaches(version, timeout=IN_TIME) == (version, 1)


def test_without_inotify_it_is_polled(tmp_path, monkeypatch):
    monkeypatch.setattr(inotify, "open_watch", inotify._Polling)
    with cells.open(str(tmp_path)) as connection, cells.open(str(tmp_path)) as other:
        reader = connection.reader("x", int)
        version = other.writer("x", int).write(1)
        assert reader.when.reaches(version, timeout=IN_TIME) == (version, 1)


def test_when_the_system_has_no_notices_to_give_it_is_polled_too(monkeypatch):
    def none_left(self):
        raise OSError(24, "no inotify instance")

    monkeypatch.setattr(inotify._Inotify, "__init__", none_left)
    assert isinstance(inotify.open_watch(), inotify._Polling)


def test_a_folder_that_cannot_be_watched_is_reported(tmp_path, monkeypatch):
    with cells.open(str(tmp_path)) as connection:
        connection.writer("x", int).write(1)

        def none_left(folder):
            raise OSError(28, "No space left on device (inotify; see max_user_watches)", folder)

        monkeypatch.setattr(connection._backend._watch, "add", none_left)
        with pytest.raises(Offline, match=r"cannot be followed: No space left on device .inotify"):
            connection.reader("y", int)


def test_an_overflow_of_notices_is_reported(monkeypatch):
    watch = inotify._Inotify()
    overflow = inotify._EVENT.pack(-1, inotify._OVERFLOW, 0, 0)
    with monkeypatch.context() as patched:
        patched.setattr(watch, "_poll", SimpleNamespace(poll=lambda _: [(watch._descriptor, 1)]))
        patched.setattr(inotify.os, "read", lambda *_: overflow)
        assert watch.wait(0) is None
    watch.close()


def test_a_watch_reports_changed_folders(tmp_path):
    watch = inotify.open_watch()
    try:
        assert not watch.add(str(tmp_path / "none"))
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            assert watch.add(str(tmp_path / name))
        assert watch.wait(0) == set()
        (tmp_path / "b" / "file").write_text("")
        assert watch.wait(SOON) == {str(tmp_path / "b")}
        watch.wake()
        assert watch.wait(SOON) == set()
    finally:
        watch.close()


def test_waking_a_closed_watch_writes_to_no_other_file(tmp_path):
    """The numbers of closed descriptors are given out again."""
    watch = inotify._Inotify()
    watch.close()
    taken = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(3)]
    try:
        watch.wake()
        watch.clear()
        watch.close()
        assert not watch.add(str(tmp_path))
        assert all(os.fstat(descriptor).st_size == 0 for descriptor in taken)
    finally:
        for descriptor in taken:
            os.close(descriptor)


def test_a_connection_may_be_closed_while_its_watcher_ends(tmp_path):
    for _ in range(50):
        connection = cells.open(str(tmp_path))
        connection._backend._closed = True
        connection._backend._watch.wake()
        connection.close()


def test_threads_and_descriptors_are_released(tmp_path):
    before, times = len(os.listdir("/proc/self/fd")), 30
    for _ in range(times):
        with cells.open(str(tmp_path)) as connection:
            connection.writer("x", int).write(1)
    assert not [thread for thread in threading.enumerate() if str(tmp_path) in thread.name]
    # Other threads of this process may open and close some meanwhile.
    assert len(os.listdir("/proc/self/fd")) < before + times


def test_a_folder_that_is_a_file_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(Offline, match="cells cannot be kept in"):
            cells.open(str(tmp_path / place))


def test_an_unreadable_folder_is_reported(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(AccessRefused, match="Permission denied"):
        cells.open(str(tmp_path))


def test_a_forbidden_write_is_reported(tmp_path, monkeypatch):
    with cells.open(str(tmp_path)) as connection:
        writer = connection.writer("x", int)

        def refused(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "link", refused)
        with pytest.raises(AccessRefused, match="this user may not") as caught:
            writer.write(1)
        assert caught.value.value == 1


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    with cells.open(str(tmp_path)) as connection:
        writer = connection.writer("x", int)

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", full)
            with pytest.raises(Offline, match="the disk is full"):
                writer.write(1)
        assert writer.write(2) == 1


def test_a_url_without_a_folder_is_refused():
    for url in ("file:", ""):
        with pytest.raises(ConfigError, match="names no folder"):
            cells.open(url)


def test_an_invalid_record_is_reported(tmp_path):
    with cells.open(str(tmp_path)) as connection:
        connection.writer("x", int).write(1)
    (tmp_path / "default" / "x" / f"{2:020}.rec").write_bytes(b"garbage")
    with cells.open(str(tmp_path)) as connection, pytest.raises(Exception, match="is not a cell's record"):
        connection.reader("x", int)


def test_a_value_of_another_shape_is_reported_and_can_be_overwritten(tmp_path):
    import msgspec

    class Old(msgspec.Struct):
        a: int

    class New(msgspec.Struct):
        b: int

    with cells.open(str(tmp_path)) as connection:
        new = connection.writer("x", New, type_name="shape")
        reader = connection.reader("x", New, type_name="shape")
        version = connection.writer("x", Old, type_name="shape").write(Old(1))
        eventually(lambda: reader._held.version == version)
        with pytest.raises(cells.Encoding, match="is not a shape"):
            reader.read()
        new.write(New(2))
        reader.when.reaches(version + 1, timeout=IN_TIME)
        assert reader.read() == New(2)


def test_a_folder_that_another_thread_began_to_watch_is_looked_at_too(tmp_path):
    """A record that came between a cell's folder and the watch on it gives no notice of its own."""
    with cells.open(str(tmp_path)) as connection, cells.open(str(tmp_path)) as other:
        reader = connection.reader("x", int)
        backend = connection._backend
        real, first = backend._attach, threading.Event()

        def attach_late():
            if threading.current_thread() is backend._thread and not first.is_set():
                first.set()
                real()
            real()

        backend._attach = attach_late
        version = other.writer("x", int).write(1)
        real()
        assert reader.when.reaches(version, timeout=IN_TIME).value == 1
