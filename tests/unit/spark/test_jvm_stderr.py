"""What the JVM writes to stderr: all of it arrives but one line, whatever becomes of those who pass it on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._spark import jvm_stderr
from tidewheel._spark.jvm_stderr import WARNING, Filter, copy, filtered

PIECES = st.sampled_from([WARNING, WARNING[:9], WARNING[9:], WARNING[:-1], b"\n", b"W", b"WARN x\r\n", b"\xff"])
JVM = (
    f"trap '' INT; printf 'first\\n{WARNING.decode().strip()}\\nsecond\\n' >&2; "
    "until [ -e '{path}' ]; do sleep 0.05; done; printf last >&2"
)
"""In place of the JVM: it writes its last when a file is there."""


@given(st.lists(PIECES), st.data())
def test_the_first_such_line_is_taken_out_and_nothing_else_however_it_arrives(pieces, data):
    text = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    lines = Filter()
    passed = b"".join(lines.pass_on(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))
    before, line, after = (b"\n" + text).partition(b"\n" + WARNING)
    assert b"\n" + passed + lines.rest() == (before + b"\n" + after if line else before)


def test_a_line_that_is_not_the_warning_does_not_wait_for_its_end():
    assert Filter().pass_on(b"WARNING: a line without an end") == b"WARNING: a line without an end"


def test_a_target_that_takes_no_more_does_not_stop_the_reading():
    source, write = os.pipe()
    read, target = os.pipe()
    os.close(read)
    reading = threading.Thread(target=copy, args=(source, target))
    reading.start()
    for _ in range(8):
        os.write(write, b"x" * 65536)  # More than a pipe holds.
    os.close(write)
    reading.join()
    os.close(source)
    os.close(target)


def test_when_the_process_that_copies_is_killed_the_rest_arrives_all_the_same(tmp_path, monkeypatch, capfd, caplog):
    popen, copying, there = subprocess.Popen, [], threading.Event()

    def start(*arguments, **options):
        copying.append(popen(*arguments, **options))
        there.set()
        return copying[0]

    before = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(jvm_stderr.subprocess, "Popen", start)
        with filtered() as stderr:
            assert there.wait(60)
            jvm = popen(["sh", "-c", JVM.format(path=tmp_path / "end")], stderr=stderr)
    text = ""
    while "second\n" not in text:
        text += capfd.readouterr().err
    copying[0].kill()
    copying[0].wait()  # What it may still have read would be lost with it.
    (tmp_path / "end").touch()
    jvm.wait()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "tidewheel-jvm-stderr":
            thread.join()
    text += capfd.readouterr().err
    assert (text.startswith("first\nsecond\n"), text.endswith("last")) == (True, True)
    assert "has ended with status -9" in caplog.text


def test_the_process_that_copies_leaves_signals_to_end_to_the_driver():
    source, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", jvm_stderr.__file__], stdin=source, stderr=subprocess.PIPE
    ) as copying:
        os.close(source)
        os.write(write, b"first\n")
        assert copying.stderr.readline() == b"first\n"
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            copying.send_signal(number)
        os.write(write, b"last\n")
        os.close(write)
        assert copying.stderr.read() == b"last\n"
    assert copying.returncode == 0


DRIVER = """
import subprocess, sys, threading
from tidewheel._spark.jvm_stderr import filtered

with filtered() as stderr:
    subprocess.Popen(["sh", "-c", sys.argv[1]], stderr=stderr)
threading.Event().wait()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_what_the_jvm_writes_after_the_end_of_the_driver_arrives(tmp_path, end):
    command = [sys.executable, "-c", DRIVER, JVM.format(path=tmp_path / "end")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as driver:
        text = b""
        while b"second\n" not in text:
            text += os.read(driver.stderr.fileno(), 65536)
        if end == signal.SIGINT:
            os.killpg(driver.pid, end)  # As Ctrl-C does.
        else:
            driver.send_signal(end)
        driver.wait()
        (tmp_path / "end").touch()
        text += driver.stderr.read()
    assert text.startswith(b"first\nsecond\n")
    assert text.endswith(b"last")
