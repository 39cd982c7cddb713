"""Find the loaded modules that are the user's own, which a worker cannot import."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from tidewheel._engine.plan import Plan

_PATHS = sysconfig.get_paths()
INSTALLED = tuple(
    {*(_PATHS[kind] for kind in ("stdlib", "purelib", "platlib")), *site.getsitepackages(), site.getusersitepackages()}
)
"""The folders of installed modules. An executor uses its own installation of these."""


def is_own(module: Any) -> bool:
    """Return whether a module is a file of the user's; the program itself, `__main__`, travels by value and is none."""
    file, name = getattr(module, "__file__", None), str(getattr(module, "__name__", "__main__"))
    if file is None or name == "__main__" or name.partition(".")[0] in ("tidewheel", "pyspark"):
        return False
    return not str(file).startswith(INSTALLED)


def direct(plan: Plan) -> dict[str, ModuleType]:
    """Return the user's modules that the plan's functions and types are defined in, by name."""
    return {module.__name__: module for module in _mentioned(plan) if is_own(module)}


def used(plan: Plan) -> tuple[dict[str, ModuleType], set[str]]:
    """Return all modules that the program uses, also indirectly: the user's own by name, and names of installed packages.

    Imports inside of functions are not seen, unless a module imports the same.
    """
    waiting = [module for module in _mentioned(plan) if is_own(module) or module.__name__ == "__main__"]
    own: dict[str, ModuleType] = {}
    packages: set[str] = set()
    while waiting:
        for module in _named_in(waiting.pop()):
            name = module.__name__
            if is_own(module):
                fresh = [each for each in _package_of(name) if each not in own]
                own |= {each: sys.modules[each] for each in fresh}
                waiting += [sys.modules[each] for each in fresh]
            elif str(getattr(module, "__file__", None) or "").startswith(INSTALLED):
                packages.add(name.partition(".")[0])
    return own, packages - sys.stdlib_module_names - {"tidewheel", "pyspark", "__main__"}


def _package_of(name: str) -> Iterator[str]:
    """Yield a module's name and those of all loaded modules of its outermost package: importing one runs others."""
    top = name.partition(".")[0]
    yield name
    for other, module in list(sys.modules.items()):
        if (other == top or other.startswith(f"{top}.")) and is_own(module):
            yield other


def _named_in(module: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules that a module's own names are, or come from."""
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        origin = sys.modules.get(name) if isinstance(name, str) else None
        if origin is not None and origin is not module:
            yield origin


def _mentioned(plan: Plan) -> Iterable[ModuleType]:
    modules: dict[str, ModuleType] = {}
    for node in plan.nodes:
        holders = [*vars(node.operator).values(), *(shape.type for shape in node.shapes)]
        for holder in holders:
            for item in (holder, type(holder), getattr(holder, "type", None), getattr(holder, "function", None)):
                name = getattr(item, "__module__", None)
                module = sys.modules.get(name) if isinstance(name, str) else None
                if module is not None:
                    modules[str(name)] = module
    return modules.values()
