"""The errors a user may see. Each says what happened, where, and what to do."""

import warnings
from typing import TYPE_CHECKING, Any

__all__ = [
    "AccessDenied",
    "ConfigError",
    "ConnectorError",
    "ConnectorUnavailable",
    "CorruptError",
    "FencedError",
    "GraphError",
    "HeldError",
    "KeysNeeded",
    "LocalDiskFull",
    "NotFound",
    "Retry",
    "StateError",
    "StepError",
    "StorageError",
    "TidewheelError",
    "UserTraceback",
    "WrongKeyType",
]


class TidewheelError(Exception):
    """Base of all errors that Tidewheel raises on purpose."""

    _public: str | None = None

    def __init_subclass__(cls, *, public: str | None = None) -> None:
        """Take the module that users import the error from, and those below it: tracebacks name that, not where it is defined."""
        super().__init_subclass__()
        cls._public = public or cls._public
        if cls._public is not None and "._" in cls.__module__ and cls.__module__.startswith("tidewheel."):
            cls.__module__ = cls._public


class UserTraceback(Exception):
    """The traceback of the user's own code, as text: the `__cause__` of the error that it led to."""

    def __str__(self) -> str:
        return f"\n{super().__str__()}"


class GraphError(TidewheelError):
    """The program is wrong: a duplicate name, a missing column, a stream that leads nowhere."""


class KeysNeeded(GraphError, AttributeError):
    """A step that needs keys was asked of a stream without any: put `key_by` before it."""


class StepError(TidewheelError):
    """A user's function failed or returned the wrong thing; the text names step, key and record."""


class Retry(TidewheelError):
    """Something that a step needs is away; the record is fine. Raise it, or a subclass, in a function of a step.

    The batch fails and runs again after a pause. That counts as a restart (`restarts=`), and no record goes to the dead
    letters. Refused connections and time-outs have the same effect without it.
    """


class ConfigError(TidewheelError):
    """A setting, URL or environment that cannot work."""


class StorageError(TidewheelError):
    """An operation of the store failed."""


class NotFound(StorageError):
    """There is nothing at that path."""

    job: str | None = None
    """The job that does not exist, if a job was looked for."""


class AccessDenied(StorageError):
    """The store refuses this user."""


class CorruptError(TidewheelError):
    """Bytes that do not decode or do not match their checksum."""


class StateError(TidewheelError):
    """The stored state and the program do not fit together."""


class WrongKeyType(StateError):
    """A key that is looked up is of another type than the step's keys: `7` and `"7"` are two keys."""


class LocalDiskFull(TidewheelError):
    """The local disk has no room for copies of state or for a batch's changes; nothing is lost, and it may work later."""


class ConnectorError(TidewheelError):
    """The server of a source or a sink rejected a request, or no longer has the requested data."""


class ConnectorUnavailable(ConnectorError):
    """The server did not answer in time; the same may work when it is back."""


class HeldError(TidewheelError):
    """Another run holds the job."""


class FencedError(TidewheelError):
    """Another run took the job over; this one must stop."""


def _renamed(module: str, values: dict[str, Any], names: dict[str, str], name: str) -> Any:
    """Return the value that an old name of a module stands for, and warn. `names` has the new name of each old one."""
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    text = f"{module}.{name} is now called {names[name]}; the old name ends with version 0.3"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
    return values[names[name]]


if not TYPE_CHECKING:
    # A type checker would accept any name.
    def __getattr__(name: str) -> Any:
        return _renamed(__name__, globals(), {"OperatorError": "StepError"}, name)
