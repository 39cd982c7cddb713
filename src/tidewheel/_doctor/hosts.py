"""Check the hosts where tasks run: Python, packages, clock, local disk, and access to the state."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidewheel._core import pickling
from tidewheel._doctor.finding import Finding, clock, fine, missing, timed
from tidewheel._spark.hosts import ADVICE, ask_hosts
from tidewheel._storage import Store, open_store
from tidewheel.errors import TidewheelError

_NETWORK_DISKS = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "9p", "fuse.s3fs", "fuse.gcsfuse")
_LEAST_FREE = 1 << 30
_SYNC_MS = 200.0


def check_hosts(spark: Any, packages: Sequence[str], local: str | None) -> Iterator[Finding]:
    """Yield the findings of each host that runs tasks now."""
    began = time.time()
    answers = [json.loads(answer) for answer in ask_hosts(spark, _asking(list(packages), local))]
    ended = time.time()
    hosts = {(answer["host"], answer["python"]): answer for answer in answers}
    for (host, python), answer in sorted(hosts.items()):
        yield from findings(f"host {host}", python, answer, (began, ended))


def findings(subject: str, python: str, answer: dict[str, Any], asked: tuple[float, float]) -> Iterator[Finding]:
    """Yield the findings from a host's answer to a request between two times. Pure."""
    own = list(sys.version_info[:2])
    if answer["version"] != own:
        text = f"{python} is Python {'.'.join(map(str, answer['version']))}, the driver is {'.'.join(map(str, own))}"
        yield missing(subject, text, "name a Python of the same minor version: --conf spark.pyspark.python=PATH")
    if answer["missing"]:
        yield missing(subject, f"{python} has no {', '.join(answer['missing'])}", ADVICE)
    else:
        yield fine(subject, f"{python} has all packages")
    # The host was asked at a moment between the two.
    early, late = asked[0] - answer["time"], answer["time"] - asked[1]
    yield clock(subject, late if late > 0 else -early if early > 0 else 0.0)
    yield from _disk(subject, answer["disk"])


def _disk(subject: str, disk: dict[str, Any]) -> Iterator[Finding]:
    folder, other = disk["folder"], "name a folder on a fast local disk: --local DIR, or TIDEWHEEL_LOCAL on the host"
    if "error" in disk:
        yield missing(subject, f"local copies cannot be written to {folder}: {disk['error']}", other)
    elif disk["kind"] in _NETWORK_DISKS:
        yield missing(
            subject, f"{folder} is on a network file system ({disk['kind']}): local copies need a local disk", other
        )
    elif disk["free"] < _LEAST_FREE:
        yield missing(subject, f"{folder} has only {disk['free'] >> 20:,} MiB free for local copies", other)
    else:
        yield fine(subject, f"{folder} has {disk['free'] >> 30:,} GiB free for local copies")
        yield timed(subject, f"to sync a file in {folder}", disk["sync_ms"], _SYNC_MS, other)


def _asking(packages: list[str], local: str | None) -> Callable[[], str]:
    def ask() -> str:
        # It travels by value and must run where nothing is installed.
        import importlib.util
        import json
        import os
        import socket
        import sys
        import tempfile
        import time

        wanted = (
            local
            or os.environ.get("TIDEWHEEL_LOCAL")
            or os.path.join(tempfile.gettempdir(), f"tidewheel-{os.getuid()}")
        )
        folder = os.path.abspath(wanted)
        disk: dict[str, Any] = {"folder": folder}
        while not os.path.isdir(folder) and folder != "/":
            folder = os.path.dirname(folder)
        try:
            places = []
            if os.path.exists("/proc/mounts"):
                with open("/proc/mounts") as mounts:
                    places = [line.split()[1:3] for line in mounts]
            # The longest mount point above the folder is the one that it is on.
            above = [(len(place), kind) for place, kind in places if f"{folder}/".startswith(place.rstrip("/") + "/")]
            disk["kind"] = max(above)[1] if above else ""
            space = os.statvfs(folder)
            disk["free"] = space.f_bavail * space.f_frsize
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(1 << 20))
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                disk["sync_ms"] = 1000 * (time.perf_counter() - began)
        except OSError as error:
            disk["error"] = str(error)
        return json.dumps(
            {
                "host": socket.gethostname(),
                "python": sys.executable,
                "version": list(sys.version_info[:2]),
                "missing": [name for name in packages if importlib.util.find_spec(name) is None],
                "time": time.time(),
                "disk": disk,
            }
        )

    return ask


def check_reach(spark: Any, store: Store, folder: str, probe: bytes) -> Iterator[Finding]:
    """Yield whether tasks on each host read an object of the driver's, and the driver reads theirs. Their packages are there."""
    answers = [json.loads(answer) for answer in ask_hosts(spark, _reaching(store.url, folder, probe))]
    there = {entry.path for entry in store.list(folder)}
    reasons: dict[str, str | None] = {}
    for host, path, error in answers:
        reason = error or (None if path in there else "the driver does not see what the host wrote")
        reasons[host] = reasons.get(host) or reason
    is_folder = store.url.startswith("file:")
    fix = "give the host the store's credentials and a route to its endpoint"
    if is_folder:
        fix = (
            "use an object store, such as --state s3://bucket/prefix, or a folder on a file system that all hosts share"
        )
    for host, reason in sorted(reasons.items()):
        if reason is None:
            how = "; start the job with --shared-state" if is_folder else ""
            yield fine(f"host {host}", f"reads and writes the state{how}")
            continue
        yield missing(f"host {host}", f"does not share the state at {store.url}: {reason}", fix)


def _reaching(url: str, folder: str, probe: bytes) -> Callable[[], str]:
    payload = pickling.dumps((url, folder, probe))

    def reach() -> str:
        import secrets
        import socket

        url, folder, probe = pickling.loads(payload)
        path, error = f"{folder}/{secrets.token_hex(8)}", None
        try:
            store = open_store(url)
            store.create(path, b"host")
            if store.read(f"{folder}/probe") != probe:
                error = "it has other bytes there"
        except (OSError, TidewheelError) as failure:
            error = str(failure)
        return json.dumps([socket.gethostname(), path, error])

    return reach
