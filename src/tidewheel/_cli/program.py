"""Load a program's file as a module and find its job."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel._storage import absolute
from tidewheel.errors import ConfigError, TidewheelError

if TYPE_CHECKING:
    from tidewheel._program.job import Job

Program = Annotated[
    str,
    typer.Argument(metavar="PROGRAM[:JOB]", help="A Python file, and the job's variable if the file has several jobs."),
]


def load_job(target: str, state: str | None = None) -> Job:
    """Return the job of `program.py` or `program.py:variable`. `state` replaces the state URL of the program."""
    path, variable = split_target(target)
    job = find_job(load_program(path), path, variable)
    if state is not None:
        job.state = absolute(state)
    return job


def load_named_program(target: str, state: str | None = None) -> Job | None:
    """Return the job of a target that names a program, like `load_job`; None if the target is the name of a job."""
    return load_job(target, state) if split_target(target)[0].suffix == ".py" else None


def split_target(target: str) -> tuple[Path, str | None]:
    """Return the file and the variable of a target.

    >>> split_target("jobs/clicks.py:hourly")
    (PosixPath('jobs/clicks.py'), 'hourly')
    """
    path, colon, variable = target.rpartition(":")
    if colon and variable.isidentifier():
        return Path(path), variable
    return Path(target), None


def load_program(path: Path) -> ModuleType:
    """Run a program's file as a module, with its folder on the path, like a Python script.

    An error of Tidewheel gets the line of the program as a note.
    """
    path = path.absolute()
    if not path.is_file():
        raise ConfigError(
            f"there is no program {path}; give the path of a Python file, such as clicks.py or clicks.py:job"
        )
    name = _module_name(path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TidewheelError as error:
        if line := _line(error, path):
            error.add_note(f"{path.name}:{line}")
        raise
    except Exception as error:
        raise ConfigError(
            f"the program {path.name} fails at {_where(error, path)}: {type(error).__name__}: {error}"
        ) from error
    return module


def _module_name(stem: str) -> str:
    """Return the module name for a program: its own name, unless another importable module has it."""
    taken = stem in sys.modules or stem in sys.stdlib_module_names or stem == "tidewheel"
    return f"tidewheel_program_{stem}" if taken else stem


def _where(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}"
    line = _line(error, path)
    return f"line {line}" if line else "its first line"


def _line(error: Exception, path: Path) -> int | None:
    """Return the line of the program that led to an error, if it is in the traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def find_job(module: ModuleType, path: Path, variable: str | None) -> Job:
    """Return the job of that name in a program, or its only job."""
    from tidewheel._program.job import Job

    jobs = {name: value for name, value in vars(module).items() if isinstance(value, Job)}
    offer = f"it has {', '.join(jobs)}" if jobs else "it has no Job at all: write job = Job('name')"
    if variable is not None:
        if variable not in jobs:
            raise ConfigError(f"{path.name} has no job {variable!r}; {offer}")
        return jobs[variable]
    distinct = {id(job): job for job in jobs.values()}
    if not distinct:
        raise ConfigError(f"{path.name}: {offer}")
    if len(distinct) > 1:
        raise ConfigError(
            f"{path.name} has several jobs; choose one: {', '.join(f'{path.name}:{name}' for name in jobs)}"
        )
    return next(iter(distinct.values()))
