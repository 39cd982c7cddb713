"""Find where the user's own code failed: the user's frames of a traceback, and no others."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import sysconfig
import traceback
import warnings
from bdb import BdbQuit
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

from tidewheel._core.text import cut, text_of, valid
from tidewheel.errors import TidewheelError

_FRAMEWORK = frozenset({"tidewheel", "pyspark", "py4j", "cloudpickle"})
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
GENERATED = "<string>"
"""The file of functions that Python generates, such as the methods of dataclasses."""
_COMPILED = (".pxi", ".pyx")
_NAMED_FRAMES = 4
"""The maximum number of frames in a message; the traceback has all of them."""
_LONGEST = 10_000
"""The maximum length of an error's text, which may quote a whole record."""
_LONGEST_TRACEBACK = 50_000

_Error = TypeVar("_Error", bound=BaseException)


def described(error: BaseException) -> str:
    """Return an error as one line: its type and text, and where in the user's code it was raised.

    >>> described(KeyError("user"))
    "KeyError: 'user'"
    """
    place = user_place(error)
    return f"{summary(error)} ({place})" if place else summary(error)


def summary(error: BaseException) -> str:
    """Return the type and the text of an error; for Tidewheel's own errors, only the text."""
    text = cut(valid(text_of(error)), _LONGEST)
    return text if isinstance(error, TidewheelError) else f"{type(error).__name__}: {text}"


def user_place(error: BaseException) -> str:
    """Return the user's frames of an error, the one that raised it first; empty if there are none.

    Frames of installed packages are omitted, unless there are no others.
    """
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_users(frame) and not frame.f_code.co_filename.endswith(_COMPILED)
    ]
    own = [frame for frame in frames if not is_installed(frame[0])] or frames
    named = [f"{os.path.basename(file)}:{line} in {function}" for file, line, function in reversed(own)]
    return ", called at ".join(named[:_NAMED_FRAMES])


def line_being_run() -> str:
    """Return the current line of the user's program in this thread, as `program.py:7`; empty if there is none."""
    frame = _frame_being_run()
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def warn(text: str) -> None:
    """Issue a `UserWarning` at the current line of the user's program in this thread, at any call depth."""
    frame = _frame_being_run()
    if frame is None:
        warnings.warn(text, stacklevel=2)
        return
    known = frame.f_globals
    warnings.warn_explicit(
        text,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=known.get("__name__"),
        registry=known.setdefault("__warningregistry__", {}),
    )


def _frame_being_run() -> FrameType | None:
    frame = inspect.currentframe()
    while frame is not None and (not _is_users(frame) or is_installed(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def is_typed_in(line: str) -> bool:
    """Return whether a line, as returned by `line_being_run`, is from a shell or a notebook and not from a file.

    >>> is_typed_in("<stdin>:1"), is_typed_in("program.py:7")
    (True, False)
    """
    return line.startswith("<") or "ipykernel" in line


def user_traceback(error: BaseException) -> str:
    """Return the traceback of the user's code as text; empty if the error and its causes have no frame of the user."""
    for each in _chain(error):
        if any(_is_users(frame) for frame, _ in traceback.walk_tb(each.__traceback__)):
            return valid("".join(traceback.format_exception(trimmed(each))).rstrip()[-_LONGEST_TRACEBACK:])
    return ""


def trimmed(error: _Error) -> _Error:
    """Remove frames that are not the user's from the traceback of an error and of its causes."""
    for each in _chain(error):
        each.__traceback__ = _users_alone(each.__traceback__)
    return error


_debugging = False


@contextlib.contextmanager
def stopping_at_errors() -> Iterator[None]:
    """Start the debugger where a user's function fails, until the block ends."""
    global _debugging
    _debugging = True
    try:
        yield
    finally:
        _debugging = False


@contextlib.contextmanager
def stopping_in_functions(said: str) -> Iterator[None]:
    """Start the debugger in the first of the user's functions that the block calls, after printing a text."""
    import pdb

    debugger = pdb.Pdb()

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if event != "call" or not _is_users(frame) or is_installed(file) or file == GENERATED:
            return None
        print(said, flush=True)
        debugger.reset()
        debugger.botframe = frame.f_back
        debugger.set_step()
        sys.settrace(debugger.trace_dispatch)
        return debugger.trace_dispatch

    outer = sys.gettrace()
    sys.settrace(begin)
    try:
        yield
    finally:
        sys.settrace(outer)


def stop_at(error: BaseException) -> None:
    """Start the debugger at the line of the user's code that raised an error, if the user has asked for it.

    End the process if the user has quit the debugger.
    """
    if isinstance(error, BdbQuit):
        raise SystemExit(1)
    frames = _users_alone(error.__traceback__) if _debugging else None
    if frames is not None:
        import pdb

        print(summary(error), flush=True)
        pdb.post_mortem(frames)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, as Python prints them."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _users_alone(entry: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while entry is not None:
        if _is_users(entry.tb_frame):
            entries.append(entry)
        entry = entry.tb_next
    kept: TracebackType | None = None
    for each in reversed(entries):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def _is_users(frame: FrameType) -> bool:
    return is_users_module(str(frame.f_globals.get("__name__", "")))


def is_users_module(name: str | None) -> bool:
    """Return whether a module of this name is not one of the framework."""
    return (name or "").partition(".")[0] not in _FRAMEWORK


def is_installed(file: str) -> bool:
    """Return whether a file of code is of the standard library or of an installed package."""
    return file.startswith((_LIBRARY, "<frozen ")) or any(part in file for part in _INSTALLED)
