"""The outputs of steps that divide a stream: numbered ones as a tuple, named ones as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tidewheel._core.text import listed

Streams = TypeVar("Streams", bound=tuple[Any, ...])
AnyStream = TypeVar("AnyStream", covariant=True)


class Parts(tuple[Any, ...]):
    """The numbered streams of a step. Using the tuple as one stream raises an error that explains how to choose one."""

    step: str

    def how_to_choose(self) -> str:
        """Return the expression that selects one of the streams."""
        if not self:
            return f"{self.step} gives no stream"
        names = [f"stream_{number}" for number in range(len(self))]
        return (
            f"{self.step} gives {len(self)} streams: {', '.join(names)} = ….{self.step}(…), and continue with "
            f"{names[0]}; or take one of them, ….{self.step}(…)[0]"
        )

    if not TYPE_CHECKING:
        # A type checker knows that this is a tuple. At run time the error names the step that returned it.
        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("_") or not self:
                raise AttributeError(f"'tuple' object has no attribute {attribute!r}")
            raise AttributeError(f"no {attribute!r} here: {self.how_to_choose()}")


class Branches(Generic[AnyStream]):
    """The named streams of a `branch`: `sizes.low`, `sizes.high`."""

    def __init__(self, step: str, streams: Mapping[str, AnyStream]) -> None:
        """Create the result of `Stream.branch`."""
        self._step, self._streams = step, dict(streams)

    def __getattr__(self, name: str) -> AnyStream:
        streams = self.__dict__.get("_streams", {})
        if name not in streams:
            known = listed([f".{each}" for each in streams])
            raise AttributeError(f"branch {self.__dict__.get('_step')!r} has no stream {name!r}; it has {known}")
        stream: AnyStream = streams[name]
        return stream


def numbered(step: str, streams: Streams) -> Streams:
    """Return a step's numbered streams as a tuple whose errors explain how to choose one."""
    made = Parts(streams)
    made.step = step
    return cast("Streams", made)
