"""Local copies shared by several processes, some of which die."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.state_build import History, catch_up, contents
from tidewheel._state.local_copies import CopyLimits, LocalCopies

TESTS = Path(__file__).parents[2]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history")


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[LocalCopies]:
    made = LocalCopies.at(tmp_path / "copies", CopyLimits(map_size=1 << 20))
    yield made
    made.close()


@pytest.fixture
def start(history: History, copies: LocalCopies) -> Iterator[Start]:
    """Start a process that has opened the copy, and waits to be told before it catches up."""
    started = []

    def start(what: str, faults: str = "") -> subprocess.Popen[str]:
        history.save()
        command = [sys.executable, "-m", "support.state_process", what]
        process = subprocess.Popen(
            [*command, str(history.folder), str(copies.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
            env={**os.environ, "TIDEWHEEL_FAULTS": faults},
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def update(history: History, number: int, keys: int = 2000) -> None:
    history.commit({"t": {b"key-%d" % n: b"%09d" % number for n in range(keys)}})


def disk(copies: LocalCopies) -> int:
    return (copies.folder / "00000" / "data.mdb").stat().st_blocks


def test_processes_that_catch_up_at_once_end_alike(history: History, start: Start, copies: LocalCopies) -> None:
    for number in range(5):
        update(history, number)
    processes = [start("catch up") for _ in range(3)]
    for process in processes:
        go(process)
    found = {line(process) for process in processes}
    assert len(found) == 1
    assert len(found.pop()) == 65
    catch_up(copies.shard(0), history)
    with copies.shard(0).begin() as reader:
        assert contents(reader) == history.expected()


def test_tables_and_map_sizes_of_another_process_are_taken_over(
    history: History, start: Start, copies: LocalCopies
) -> None:
    history.commit({"t": {b"a": b"1"}})
    catch_up(copies.shard(0), history)
    with copies.shard(0).begin() as reader:
        assert contents(reader) == history.expected()
    # Far larger than the map that this process has, and a table that it has not opened.
    history.commit({"u": {b"%d" % n: os.urandom(1000) for n in range(3000)}})
    process = start("catch up")
    go(process)
    assert len(line(process)) == 65
    history.fetched.clear()
    catch_up(copies.shard(0), history)
    assert history.fetched == []
    with copies.shard(0).begin() as reader:
        assert contents(reader) == history.expected()


def test_a_process_killed_inside_its_transaction_leaves_the_copy_as_it_was(
    history: History, start: Start, copies: LocalCopies
) -> None:
    update(history, 0)
    catch_up(copies.shard(0), history)
    update(history, 1)
    process = start("catch up", faults="copy.filled=kill")
    go(process)
    assert process.wait() == -signal.SIGKILL
    copy = copies.shard(0)
    assert copy.applied == 1
    catch_up(copy, history)
    with copy.begin() as reader:
        assert contents(reader) == history.expected()


def test_a_killed_reader_does_not_stop_page_reuse(history: History, start: Start, copies: LocalCopies) -> None:
    # Open here all the time: whoever opens an environment that nobody else has open starts with no readers.
    copies.shard(0)
    update(history, 0)
    process = start("read")
    go(process)
    assert line(process) == "reading\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    sizes = []
    for number in range(1, 30):
        update(history, number)
        catch_up(copies.shard(0), history)
        sizes.append(disk(copies))
    assert sizes[-1] == sizes[5]


def test_a_living_reader_keeps_its_pages(history: History, start: Start, copies: LocalCopies) -> None:
    update(history, 0)
    process = start("read")
    go(process)
    assert line(process) == "reading\n"
    for number in range(1, 10):
        update(history, number)
        catch_up(copies.shard(0), history)
    go(process)
    seen = line(process)
    # The same as a process sees that never heard of the later commits.
    fresh = History.load(history.folder)
    assert fresh.sequence == 1
    other = LocalCopies.at(copies.folder.with_name("fresh"))
    catch_up(other.shard(0), fresh)
    other.close()
    elsewhere = subprocess.run(
        [
            sys.executable,
            "-m",
            "support.state_process",
            "catch up",
            str(history.folder),
            str(other.folder),
        ],
        cwd=TESTS,
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.splitlines()[-1] + "\n" == seen


def test_a_process_with_an_older_manifest_is_refused(history: History, start: Start, copies: LocalCopies) -> None:
    update(history, 0)
    late = start("catch up")
    update(history, 1)
    catch_up(copies.shard(0), history)
    go(late)
    assert "ahead: it holds commit 2 of this run, but the newest part at sequence 1 is of commit 1" in line(late)


def test_a_full_disk_is_an_error_and_leaves_the_copy_as_it_was(
    history: History, start: Start, copies: LocalCopies
) -> None:
    update(history, 0, keys=100)
    catch_up(copies.shard(0), history)
    update(history, 1, keys=10_000)
    process = start("fill the disk")
    go(process)
    assert re.search(r"disk is full, or fails: .*shard 0 in .* bytes free\) could not be written", line(process))
    assert copies.shard(0).applied == 1
    catch_up(copies.shard(0), history)
    with copies.shard(0).begin() as reader:
        assert contents(reader) == history.expected()


def test_more_shards_than_the_limit_of_open_files_allows_raise_it(start: Start) -> None:
    process = start("open many")
    go(process)
    assert line(process) == f"{[0] * 29}\n"
