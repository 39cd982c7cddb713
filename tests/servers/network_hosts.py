"""Hosts with their own networks: Linux network namespaces on a bridge, each with its own name and addresses.

Needs root and iproute2. All hosts share the machine's file system, like hosts with a common mount.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_NOWHERE = "02:00:00:00:00:01"
"""An address of no network card: packets to it vanish without an answer, as when a cable is cut."""


class Host:
    """A host: commands that begin with `inside` run there."""

    def __init__(self, network: str, subnet: str, number: int) -> None:
        self.name = f"{network}h{number}"
        self.addresses = [f"{subnet}.{number}.1", f"{subnet}.{number}.2"]
        self._cut: set[str] = set()
        _ip("netns", "add", self.name)
        _ip("link", "add", f"{self.name}o", "type", "veth", "peer", "name", "net0", "netns", self.name)
        _ip("link", "set", f"{self.name}o", "master", network, "up")
        self._ip("link", "set", "lo", "up")
        for address in self.addresses:
            self._ip("addr", "add", f"{address}/16", "dev", "net0")
        self._ip("link", "set", "net0", "up")
        # `ip netns exec` puts this file in the place of /etc/hosts: a host must know its own name.
        self._files = Path("/etc/netns") / self.name
        self._files.mkdir(parents=True)
        (self._files / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def inside(self) -> tuple[str, ...]:
        """The beginning of a command that runs on this host, with its host name."""
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name)
        return ("ip", "netns", "exec", self.name, *named)

    def cut_off(self, address: str) -> None:
        """Let all that this host sends to an address vanish."""
        self._ip("neigh", "replace", address, "lladdr", _NOWHERE, "dev", "net0", "nud", "permanent")
        self._cut.add(address)

    def reconnect(self) -> None:
        """Undo all cuts."""
        for address in self._cut:
            self._ip("neigh", "del", address, "dev", "net0")
        self._cut.clear()

    def slow_down(self, rate: str) -> None:
        """Limit what this host sends, and what it receives, to a rate such as `1mbit`."""
        self._queue("add", "tbf", "rate", rate, "burst", "16k", "latency", "500ms")

    def speed_up(self) -> None:
        """Undo `slow_down`."""
        self._queue("del")

    def _queue(self, change: str, *discipline: str) -> None:
        """Change how packets wait at both ends of the cable."""
        _run("tc", "-n", self.name, "qdisc", change, "dev", "net0", "root", *discipline)
        _run("tc", "qdisc", change, "dev", f"{self.name}o", "root", *discipline)

    def _ip(self, *arguments: str) -> None:
        _ip("-n", self.name, *arguments)

    def remove(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "del", self.name)
        shutil.rmtree(self._files)


@contextlib.contextmanager
def running_hosts(count: int) -> Iterator[list[Host]]:
    """Make hosts that reach each other, and that this process reaches; each has two addresses."""
    # Test runs at the same time have networks of their own.
    network, subnet = f"tw{os.getpid()}", f"10.{100 + os.getpid() % 150}"
    hosts: list[Host] = []
    _ip("link", "add", network, "type", "bridge")
    try:
        _ip("addr", "add", f"{subnet}.255.254/16", "dev", network)
        _ip("link", "set", network, "up")
        for number in range(count):
            hosts.append(Host(network, subnet, number))
        yield hosts
    finally:
        for host in hosts:
            host.remove()
        _ip("link", "del", network)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size such as `64k`, in memory; `grow` makes it larger."""
    folder.mkdir(mode=0o700)
    _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _run("umount", "-l", str(folder))


def grow(disk: Path, size: str) -> None:
    """Give a small disk another size."""
    _run("mount", "-o", f"remount,size={size}", str(disk))


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
