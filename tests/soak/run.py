"""The soak: two jobs, a fleet and all their servers, with faults all the while, and an independent count in the end.

    make soak HOURS=1

runs it for an hour and prints a report. It needs root, for a disk of its own that fills. `python -m soak.run --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servers import java_archive
from servers.nats_server import running_nats
from servers.postgres_server import running_postgres
from servers.stores import running_etcd, running_seaweedfs
from servers.tcp_proxy import TcpProxy
from soak import checker, clock, faults, report, traffic
from soak.lives import Life, files_below, machine_cpu, settings_command, used
from soak.watching import Commands, Looking, Table
from support.fleet_nodes import SHARDS, Fleet
from support.internals import open_store
from support.waiting import eventually
from tidewheel import StoredJob
from tidewheel.errors import TidewheelError

TESTS = Path(__file__).resolve().parents[1]
DISK_MIB = 768
_SAMPLE_S = 10.0
_PAUSE_S = (10.0, 18.0)
"""How long it is from the beginning of a fault to that of the next one: 257 faults in an hour."""
_FIRST_COMMIT_S = 1800.0
"""How long the jobs and nodes may take to start together, on a machine that is as busy as can be."""
_NOT_NOW = ("there is no checkpoint", "abandoned", "No space")
"""Why a restore may be refused: the checkpoint was dropped meanwhile, it is of another future, or the disk is full."""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system in memory, which a fault fills."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def restored(life: Life, state: str) -> faults.Fault:
    """Go back to an earlier checkpoint, by another process; `--take-over` fences the run."""

    def happens(draw: random.Random) -> None:
        job = StoredJob("rewound", state=state)
        back = str(draw.choice(job.checkpoints.sequences()))
        # Each restore leaves one; nobody wants them here, and they keep files.
        for savepoint in job.savepoints():
            if savepoint.name.startswith("before-restore-"):
                job.drop_savepoint(savepoint.name)
        if draw.random() < 0.5:
            life.signal(signal.SIGKILL)
        command = [sys.executable, "-m", "tidewheel", "checkpoints", "restore", "rewound", back, "--state", state]
        ran = subprocess.run([*command, "--take-over"], capture_output=True, text=True)
        said = ran.stderr.strip().splitlines()
        if ran.returncode and not any(word in line for line in said for word in _NOT_NOW):
            raise OSError(f"restore to {back}: {said[-3:]}")

    return faults.Fault("restore to an earlier checkpoint", [life], faults.at_once(happens), 4)


class Soak:
    """Everything that runs."""

    def __init__(self, folder: Path, seed: int, stack: contextlib.ExitStack) -> None:
        self.folder, self.seed = folder, seed
        enter = stack.enter_context
        self.disk = enter(small_disk(folder / "disk"))
        self.nats = enter(running_nats(folder / "nats"))
        self.etcd = enter(running_etcd(folder / "etcd", members=3))
        self.postgres = enter(running_postgres())
        self.weed = enter(running_seaweedfs(folder / "weed"))
        s3_port = int(self.weed.endpoint.rpartition(":")[2])
        self.to_nats = [enter(TcpProxy(self.nats.port))]
        self.to_etcd = [enter(TcpProxy(port)) for port in self.etcd.client_ports]
        self.to_postgres = [enter(TcpProxy(self.postgres.port))]
        self.to_s3 = [enter(TcpProxy(s3_port))]
        self.fleet = Fleet(self.disk / "fleet", cells=self.etcd.url("fleet"), inbox=self.nats.url("inbox"))
        stack.callback(self.fleet.close)
        self.producer = traffic.Producer(self.nats, 30, seed)
        self.routing = traffic.Routing(self.fleet, 40, 2.0)
        # Tools look past the proxies; the jobs do not.
        self.totals_state, self.rewound_state = self.weed.url("totals"), f"file://{self.disk}/rewound/state"
        self._s3_of_jobs = self.weed.url("totals").replace(str(s3_port), str(self.to_s3[0].port))
        self._delta_of_jobs = self.weed.url("pairs").replace(str(s3_port), str(self.to_s3[0].port))
        self.cells = self.etcd.url("jobs")
        self.clocks = {name: folder / f"clock-{name}" for name in ("totals", "rewound", *"abc")}
        for path in self.clocks.values():
            clock.jump(path, 0)
        self.lives = {name: self._life(name) for name in self.clocks}
        self.samples: dict[str, dict[str, list[tuple[float, float]]]] = {
            kind: {} for kind in ("Memory (MB)", "Handles", "Files of state", "CPU (% of a core)")
        }

        self._cpu: dict[str, tuple[float, float]] = {}

    def _life(self, name: str) -> Life:
        if name in ("totals", "rewound"):
            return Life(
                name, lambda take_over: self._job(name, take_over=take_over), TESTS, self.folder / f"{name}.log"
            )
        return Life(name, lambda take_over: self._node(name), TESTS, self.folder / f"node-{name}.log")

    def _node(self, name: str) -> list[str]:
        cells = "etcd://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.to_etcd) + "/fleet"
        inbox = f"nats://127.0.0.1:{self.to_nats[0].port}/inbox"
        module = [sys.executable, "-m", "soak.node", str(self.clocks[name])]
        return [*module, name, str(self.disk / "fleet"), cells, inbox, "5"]

    def _job(self, name: str, **more: object) -> list[str]:
        settings: dict[str, object] = {
            "name": name,
            "nats": f"nats://127.0.0.1:{self.to_nats[0].port}",
            "clock": str(self.clocks[name]),
            "local": str(self.disk / name / "local"),
            "out": str(self.disk / name / "out"),
            **more,
        }
        if name == "totals":
            dsn = self.postgres.dsn.replace(str(self.postgres.port), str(self.to_postgres[0].port))
            cells = "etcd://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.to_etcd) + "/jobs"
            settings |= {"state": self._s3_of_jobs, "postgres": dsn, "delta": self._delta_of_jobs, "cells": cells}
        else:
            settings["state"] = self.rewound_state
        return settings_command(sys.executable, "soak.program", settings)

    def injector(self) -> faults.Injector:
        """Return what lets faults happen to each job, the fleet and the servers."""
        totals, rewound, *nodes = self.lives.values()
        everyone, on_etcd = list(self.lives.values()), [totals, *nodes]

        def of_job(life: Life) -> list[faults.Fault]:
            worker = faults.Fault(f"kill a task of {life.name}", [life], faults.at_once(life.kill_worker), 3)
            jump = faults.clock_jump(life, self.clocks[life.name])
            return [faults.killed(life), worker, faults.paused(life, 12), faults.overtaken(life), jump, jump]

        full = faults.full_disk(self.disk, [rewound, *nodes])
        of_nodes = [faults.paused(node, 9) for node in nodes]
        of_nodes += [faults.clock_jump(node, self.clocks[node.name]) for node in nodes]
        # Node a is never killed: its memory shows what an hour adds.
        of_nodes += [faults.killed(node) for node in nodes[1:] for _ in range(2)]
        of_nodes += [
            faults.Fault(
                f"drain {node.name}", [node], faults.at_once(lambda draw, node=node: node.signal(signal.SIGTERM))
            )
            for node in nodes[1:]
        ]
        of_servers = [
            *faults.etcd_faults(self.etcd, on_etcd),
            *faults.network("etcd", self.to_etcd, on_etcd),
            *faults.network("etcd, one member", self.to_etcd[:1], on_etcd)[2:3],
            faults.server_killed("NATS", self.nats, everyone),
            *faults.network("NATS", self.to_nats, everyone),
            faults.server_killed("PostgreSQL", self.postgres, [totals]),
            *faults.network("PostgreSQL", self.to_postgres, [totals]),
            faults.server_killed("S3", self.weed, [totals]),
            *faults.network("S3", self.to_s3, [totals]),
        ]
        groups = [
            faults.Group(of_job(totals), 2),
            faults.Group([*of_job(rewound), restored(rewound, self.rewound_state), full], 3),
            faults.Group(of_nodes, 4),
            faults.Group(of_servers, 4, patient=False),
        ]
        return faults.Injector(groups, self.seed + 1, _PAUSE_S)

    def watchers(self) -> list[Looking]:
        """Return the readers, and what other processes do."""
        totals = self.producer.totals
        on_totals = Commands("totals", self.totals_state, totals, self.seed + 5, self.cells)
        on_rewound = Commands("rewound", self.rewound_state, totals, self.seed + 6)
        changes = [each for on in (on_totals, on_rewound) for each in (on.collect, on.rescale, on.set_cell, on.fork)]
        reads = [on_totals.read, on_rewound.read, on_totals.verify, on_rewound.verify, Table(self.postgres.query)]
        return [Looking("changes", changes, 10, self.seed + 7), Looking("reads", reads, 4, self.seed + 8)]

    def sample(self, began: float) -> None:
        """Note memory, handles and files."""
        at = time.monotonic() - began
        running = {life.process.pid: name for name, life in self.lives.items() if life.process is not None}
        for name, (memory, handles, seconds) in used(running).items():
            if not handles:
                continue  # It is being started again.
            self._note("Memory (MB)", name, at, memory)
            self._note("Handles", name, at, handles)
            self._note_cpu(name, at, seconds)
        self._note_cpu("whole machine", at, machine_cpu())
        self._note("Files of state", "rewound", at, files_below(self.disk / "rewound" / "state"))
        self._note("Files of state", "fleet", at, files_below(self.disk / "fleet" / "state"))
        with contextlib.suppress(Exception):
            self._note("Files of state", "totals, on S3", at, sum(1 for _ in open_store(self.totals_state).list("")))
        local = sum(files_below(self.disk / name / "local") for name in ("totals", "rewound"))
        self._note("Files of state", "local copies", at, local + files_below(self.disk / "fleet" / "local"))

    def _note(self, kind: str, name: str, at: float, value: float) -> None:
        self.samples[kind].setdefault(name, []).append((at, value))

    def _note_cpu(self, name: str, at: float, seconds: float) -> None:
        """Note the share of a core since the last sample; a process that was started again has spent less than before."""
        before, spent = self._cpu.get(name, (at, seconds))
        self._cpu[name] = (at, seconds)
        if at > before and seconds >= spent:
            self._note("CPU (% of a core)", name, at, 100 * (seconds - spent) / (at - before))

    def finish(self, name: str) -> None:
        """Let the job read everything and end."""
        self.lives[name].stop()
        for _ in range(5):
            command = self._job(name, until="end")
            with (self.folder / f"{name}.log").open("a") as log:
                if subprocess.run(command, cwd=TESTS, stdout=log, stderr=log).returncode == 0:
                    return
        raise AssertionError(f"{name} did not come to its end: see {name}.log")

    def finish_fleet(self) -> None:
        """Wait until all events are counted, and drain the nodes."""

        def counted() -> int:
            # While nodes work off a backlog, a file can be collected between reading a record and reading the file.
            with contextlib.suppress(TidewheelError):
                return sum(n for n, _ in self.fleet.totals().values())
            return -1

        eventually(lambda: counted() == self.routing.routed, "counting all events of the fleet", 600)
        for name in "abc":
            self.lives[name].stop()

    def rows(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Read what the sinks of a job hold, by the plain clients."""
        out = self.disk / name / "out"
        found = {sink: _lines(out / sink) for sink in ("windows", "unanswered")}
        late = [*_lines(out / "late-payments"), *_lines(out / "late-offers")]
        assert not late, f"{len(late)} late messages in {name}: {late[:2]}"
        if name == "rewound":
            return {**found, "numbered": _lines(out / "numbered"), "pairs": _lines(out / "pairs")}
        from deltalake import DeltaTable

        numbered = self.postgres.query('SELECT "user", n, total, threshold FROM numbered')
        columns = ("user", "n", "total", "threshold")
        options = {"endpoint_url": self.weed.endpoint, "region": "us-east-1", "allow_http": "true"}
        table = DeltaTable("s3://tests/pairs", storage_options=options)
        return {
            **found,
            "numbered": [dict(zip(columns, row, strict=True)) for row in numbered],
            "pairs": table.to_pyarrow_table().to_pylist(),
        }


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]


def soak(soak: Soak, seconds: float) -> tuple[str, bool]:
    """Run for so long; return the report, and whether everything is as it must be."""
    began = time.monotonic()
    ended = threading.Event()
    wrong: list[str] = []

    @contextlib.contextmanager
    def reported(what: str) -> Iterator[None]:
        """Put an error into the report: it must not cost the report of an hour."""
        try:
            yield
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:500]}")
            print(f"WRONG {wrong[-1]}", flush=True)

    def sampling() -> None:
        while not ended.wait(_SAMPLE_S):
            soak.sample(began)

    soak.producer.start()
    soak.routing.start()
    for life in soak.lives.values():
        life.start()
    threads: list[Any] = [threading.Thread(target=sampling, name="sampling", daemon=True)]
    try:
        for life in soak.lives.values():
            assert life.wait_for_commit(0, _FIRST_COMMIT_S), f"{life.name} made no commit"
        print(f"{time.monotonic() - began:7.1f} s  all have committed; the faults begin", flush=True)
        injector, watchers = soak.injector(), soak.watchers()
        began = time.monotonic()
        threads += [injector, *watchers]
        for thread in threads:
            thread.start()
        ended.wait(seconds)
        for each in (injector, *watchers):
            each.stopping.set()
        for each in (injector, *watchers):
            each.join()
        ended.set()
        print(f"{time.monotonic() - began:7.1f} s  the faults are over", flush=True)
        soak.producer.stop()
        soak.routing.stop()
        lasted = time.monotonic() - began
        with reported("the end of the fleet"):
            soak.finish_fleet()
        for name in ("totals", "rewound"):
            with reported(f"the end of {name}"):
                soak.finish(name)
    finally:
        ended.set()
        for each in threads:
            if hasattr(each, "stopping"):
                each.stopping.set()
        soak.producer._stopped.set()
        soak.routing._stopped.set()
        for life in soak.lives.values():
            life.stop(signal.SIGKILL, 10)

    happened = sorted(injector.happened, key=lambda each: each.at)
    payments, offers = traffic.stored(soak.nats)
    wanted = checker.expected(payments, offers)
    lines = []
    wrong += [text for watcher in watchers for text in watcher.wrong]
    acknowledged = soak.producer.acknowledged
    if len(payments) + len(offers) < acknowledged:
        wrong.append(f"the stream has {len(payments) + len(offers)} messages of {acknowledged}")
    for name in ("totals", "rewound"):
        with reported(f"the rows of {name}"):
            rows = soak.rows(name)
            for sink, found in checker.differences(wanted, rows).items():
                wrong += [f"{name}, {sink}: {text}" for text in found]
            counts = ", ".join(f"{len(each):,} {sink}" for sink, each in rows.items())
            lines.append(f"| {name} | {len(payments) + len(offers):,} | {counts} |")
    with reported("fleet"):
        soak.fleet.check_exact()
    lines.append(f"| fleet | {soak.routing.routed:,} | {len(soak.fleet.published()):,} |")
    done = sum((watcher.done for watcher in watchers), Counter())
    away = sum((watcher.away for watcher in watchers), Counter())
    exits = {name: len(life.exits) for name, life in soak.lives.items()}
    charts = {title: (title, series) for title, series in soak.samples.items()}
    report.write_charts(soak.folder, charts)
    counts = f"{len(happened)} faults, {len(wrong)} differences, {len(injector.failures)} failures"
    text = f"""{lasted / 60:.0f} minutes, seed {soak.seed}: {counts}.

{report.faults_table(happened)}

| | records in | rows out |
|---|---|---|
{chr(10).join(lines)}

What other processes did: {", ".join(f"{n} x {what}" for what, n in sorted(done.items()))}.
Refused because something was away: {sum(away.values())}. Processes that ended and were started again: {exits}.

{report.growth_table(soak.samples)}
"""
    text += "".join(f"\nDIFFERENCE {each}" for each in wrong[:100]) + "".join(
        f"\nFAILURE {each}" for each in injector.failures
    )
    text += "".join(f"\naway {n} x {what}" for what, n in away.most_common(20))
    return text, not wrong and not injector.failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--folder", type=Path, help="where logs, charts and the report go; by default a new folder")
    given = parser.parse_args()
    # A process in the background of a script ignores SIGINT; either signal must unmount the disk and end the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("the soak was stopped"))
    folder = given.folder or Path(tempfile.mkdtemp(prefix="tidewheel-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    java_archive.prepare()
    # Drivers start in half the time, and servers take ports that no test run draws from.
    os.environ.update(java_archive.java_environment(), PYTEST_XDIST_WORKER="gw7")
    print(f"seed {given.seed}, {given.hours:g} hours, in {folder}, {os.cpu_count()} cores, {SHARDS} shards", flush=True)
    with contextlib.ExitStack() as stack:
        text, good = soak(Soak(folder, given.seed, stack), given.hours * 3600)
        (folder / "report.md").write_text(text)
        print(text, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
