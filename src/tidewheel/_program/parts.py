"""Parts: the several streams of one step. Taken for one stream, they say how to choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

Streams = TypeVar("Streams", bound=tuple[Any, ...])


class Parts(tuple[Any, ...]):
    """What a step returns that gives several streams: a tuple of them, which knows the step and what its streams are called."""

    step: str
    names: tuple[str, ...]

    def how_to_choose(self) -> str:
        """Return what to write where one of the streams is meant."""
        if not self:
            return f"{self.step} gives no stream"
        return (
            f"{self.step} gives {len(self)} streams: {', '.join(self.names)} = ….{self.step}(…), and go on with "
            f"{self.names[0]}; or take one of them, ….{self.step}(…)[0]"
        )

    if not TYPE_CHECKING:
        # A type checker knows that it is a tuple. A person learns here which step has made it one.
        def __getattr__(self, attribute: str) -> Any:
            if attribute.startswith("_") or not self:
                raise AttributeError(f"'tuple' object has no attribute {attribute!r}")
            raise AttributeError(f"no {attribute!r} here: {self.how_to_choose()}")


def parts(step: str, names: tuple[str, ...], streams: Streams) -> Streams:
    """Return the streams of a step as a tuple that says how to choose, each under the name that it has in examples."""
    made = Parts(streams)
    made.step, made.names = step, names
    return cast("Streams", made)


def numbered(step: str, streams: Streams) -> Streams:
    """As `parts`, for streams that nothing but their number tells apart."""
    return parts(step, tuple(f"stream_{number}" for number in range(len(streams))), streams)
