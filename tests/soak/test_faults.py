"""The faults of the soak come on time, every kind of them, and the disk is really full."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import threading
from collections import Counter
from typing import Any

import pytest

from soak import faults
from support.waiting import eventually


class Silent:
    """A process that never commits until it is told to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.commits: list[float] = []
        self.committing = threading.Event()

    def wait_for_commit(self, after: float, seconds: float) -> bool:
        self.committing.wait(seconds)
        return self.committing.is_set()


def nothing(kind: str, life: Any, weight: int = 1) -> faults.Fault:
    return faults.Fault(kind, [life], faults.at_once(lambda draw: None), weight)


def test_every_kind_comes_up_once_and_then_as_often_as_it_weighs():
    life = Silent("job")
    group = faults.Group([nothing("kill", life), nothing("disk full", life, 2), nothing("restore", life, 3)], 1)
    dealt = [fault.kind for fault in (group.deal(random.Random(7), ()) for _ in range(15)) if fault]
    assert Counter(dealt[:3]) == {"kill": 1, "disk full": 1, "restore": 1}
    assert Counter(dealt[3:]) == {"kill": 2, "disk full": 4, "restore": 6}


def test_a_process_that_has_not_recovered_gets_no_further_faults():
    slow, quick = Silent("slow"), Silent("quick")
    quick.committing.set()
    groups = [
        faults.Group([nothing("kill slow", slow)], 1),
        faults.Group([nothing("kill quick", quick)], 1),
        faults.Group([nothing("cut the network", slow)], 1, patient=False),
    ]
    injector = faults.Injector(groups, 3, (0.0, 0.01))
    injector.start()
    try:
        eventually(lambda: Counter(each.kind for each in injector.happened)["kill quick"] > 20, "20 faults")
        assert {each.kind for each in injector.happened} == {"kill quick"}
    finally:
        injector.stopping.set()
        slow.committing.set()
        injector.join()
    happened = Counter(each.kind for each in injector.happened)
    assert happened["kill slow"] == 1
    assert happened["cut the network"] > 5
    assert injector.failures == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
def test_a_full_disk_takes_no_byte_until_it_is_healed(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        (disk / "there").write_bytes(bytes(100_000))
        fault = faults.full_disk(disk, [])
        with contextlib.ExitStack() as stack:
            stack.enter_context(fault.begin(random.Random(0)))
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                (disk / "more").write_bytes(b"x")
        (disk / "more").write_bytes(b"x")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
