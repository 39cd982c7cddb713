"""Put the simulated time, threads, network and random numbers into the modules of Tidewheel.

What a module gets is decided by what it imports: `time`, `threading`, `secrets`, `socket`, `random`, `uuid`, and the names of
`concurrent.futures`. Functions that have a clock as a default get the simulated one.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import pkgutil
import random
import secrets
import socket
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from simulation import inbox, primitives
from simulation.primitives import scheduler
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.stateless.source import SourceOperator

_MODULES: dict[int, Any] = {
    id(time): primitives.clock,
    id(threading): primitives.threads,
    id(secrets): primitives.tokens,
    id(socket): primitives.network,
    id(random): primitives.dice,
    id(uuid): primitives.uuids,
    id(concurrent.futures.ThreadPoolExecutor): primitives.Executor,
    id(concurrent.futures.Future): primitives.Future,
    id(concurrent.futures.wait): primitives.wait_all,
}
_CLOCKS: dict[int, Any] = {
    id(time.time): primitives.clock.time,
    id(time.time_ns): primitives.clock.time_ns,
    id(time.monotonic): primitives.clock.monotonic,
    id(time.monotonic_ns): primitives.clock.monotonic_ns,
}
_PARTS = (
    "_engine",
    "_checkpoint",
    "_storage",
    "_cells",
    "_state",
    "_core.threads",
    "_core.retry",
    "fleet",
    "_connectors.files",
)
_REAL = ("tidewheel._storage.file", "tidewheel._storage.scratch", "tidewheel._cells.type_description")
"""Modules that keep what they have: nothing simulated reaches them, or they use `uuid` for its types."""


class Clients:
    """Stands in for the module `obstore`: finds the client of the history that is played."""

    def __getattr__(self, name: str) -> Any:
        return getattr(scheduler().client, name)  # type: ignore[attr-defined]


class _Objects(dict[int, Any]):
    """Stands in for a `WeakSet`, whose order depends on addresses in memory."""

    def add(self, item: Any) -> None:
        self[id(item)] = item

    def discard(self, item: Any) -> None:
        self.pop(id(item), None)

    def __iter__(self) -> Any:
        return iter(tuple(self.values()))


class _Os(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def install(patch: Any) -> None:
    """Patch all modules, by `patch.setattr(module, name, value)`. What is imported later is not patched."""
    _import_all()
    from tidewheel._cells import connection, declared
    from tidewheel._cells import lease as cell_lease
    from tidewheel._cells.backends import chained
    from tidewheel._cells.deadline import seconds_since_boot
    from tidewheel._engine import declaration, job_lease
    from tidewheel._operators.keyed import state_spec
    from tidewheel._storage import remote
    from tidewheel.fleet import _inbox as fleet_inbox
    from tidewheel.fleet._inbox import stream
    from tidewheel.fleet._nodes import node, runs

    boot_clock = {id(seconds_since_boot): primitives.clock.monotonic}
    modules, clocks = {**_MODULES, **boot_clock}, {**_CLOCKS, **boot_clock}
    for module in _loaded():
        for name, value in list(vars(module).items()):
            if id(value) in modules:
                patch.setattr(module, name, modules[id(value)])
        for function in _functions(module):
            defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
            if any(id(value) in clocks for value in (*defaults, *keywords.values())):
                patch.setattr(
                    function, "__defaults__", tuple(clocks.get(id(value), value) for value in defaults) or None
                )
                patch.setattr(
                    function, "__kwdefaults__", {key: clocks.get(id(value), value) for key, value in keywords.items()}
                )
    # Suspended writers must meet trimmed records in histories of a few writes.
    patch.setattr(chained, "_TRIM_EVERY", 3)
    # Nodes look often, which is most of what happens in a history, and tidy within one.
    patch.setattr(node, "_LOOK_SECONDS", 1.0)
    patch.setattr(node, "_TIDY_SECONDS", 20.0)
    patch.setattr(node, "sweep", partial(node.sweep, beginning=20.0))
    patch.setattr(node, "remove_ended_runs", partial(node.remove_ended_runs, after=20.0))
    patch.setattr(connection, "weakref", SimpleNamespace(WeakSet=_Objects, ref=weakref.ref))
    # Histories use few types and programs, again and again: looking at them takes longer than all the rest.
    patch.setattr(declared, "check_keys", cache(declared.check_keys))
    patch.setattr(state_spec, "msgpack_codec", cache(state_spec.msgpack_codec))
    patch.setattr(declaration, "fingerprint", _once_for_each_program(declaration.fingerprint))
    for module in (fleet_inbox, stream, node):
        patch.setattr(module, "open_inbox", inbox.open_inbox)
    patch.setattr(remote, "obstore", Clients())
    patch.setattr(remote, "_client", lambda url: urlsplit(url).path.strip("/"))
    own = _Os(getpid=lambda: scheduler().process.pid)
    for module in (job_lease, cell_lease, runs):
        patch.setattr(module, "os", own)
    patch.setattr(job_lease, "boot_id", lambda: f"boot of {scheduler().process.host.name}")
    patch.setattr(job_lease, "_processes", lambda: "")
    patch.setattr(job_lease, "_process_started", lambda pid: scheduler().started(pid))  # type: ignore[attr-defined]


def _once_for_each_program(fingerprint: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return the function with a memory: plans of one program differ in their sources and sinks, which do not count."""
    known: dict[tuple[int, ...], tuple[str, Any]] = {}

    def remembered(plan: Any) -> str:
        operators = [node.operator for node in plan.nodes]
        steps = [each for each in operators if not isinstance(each, SourceOperator | SinkOperator)]
        key = tuple(map(id, steps))
        if key not in known:
            known[key] = fingerprint(plan), steps  # They stay alive, so that no other object gets their ids.
        return known[key][0]

    return remembered


@cache
def _import_all() -> None:
    """Import all modules of the simulated parts: a module that is imported in a history would keep the real clock."""
    for part in _PARTS:
        package = importlib.import_module(f"tidewheel.{part}")
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
            if "with_" not in found.name:
                importlib.import_module(found.name)


def _loaded() -> list[ModuleType]:
    wanted = tuple(f"tidewheel.{part}" for part in _PARTS)
    found = [module for name, module in sys.modules.items() if name.startswith(wanted) and name not in _REAL]
    return [module for module in found if module is not None]


def _functions(module: ModuleType) -> list[FunctionType]:
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    methods = [method for each in own if isinstance(each, type) for method in vars(each).values()]
    return [each for each in (*own, *methods) if isinstance(each, FunctionType)]
