"""Steps: the base of all streams, a job and one output in its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from tidewheel._operators.base import Operator
from tidewheel._operators.graph import Port
from tidewheel._program.arguments import Errors, checked_errors
from tidewheel._program.parts import Parts
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError, KeysNeeded

if TYPE_CHECKING:
    from tidewheel._program.job import Job
    from tidewheel._program.stream import Stream


class Steps(Generic[Value]):
    """An output in a job's graph to which steps can be added."""

    def __init__(self, job: Job, port: Port) -> None:
        """Create a stream; called by `Job.source` and the steps."""
        self.job = job
        self.port = port

    def __repr__(self) -> str:
        step = self.job.graph.nodes[self.port.node].name
        return f"<{type(self).__name__} after {step!r} of job {self.job.name!r}>"

    def _then(self, name: str, operator: Operator, retry: Errors = ()) -> Port:
        return Port(self.job.graph.add(name, operator, (self.port,), checked_errors(name, retry)).id)

    def _named(self, step: str, name: Any, argument: Any) -> tuple[str, Any]:
        """Return the name and the argument of a step whose name is optional: `map("name", function)` or `map(function)`."""
        if isinstance(argument, str) and callable(name):
            raise GraphError(f"{step} takes its name first: {step}({argument!r}, …)")
        if argument is None and (step == "key_by" or not isinstance(name, str)):
            name, argument = None, name
        return (self.job.graph.automatic_name(step, argument) if name is None else name), argument

    def _at(self, port: Port) -> Stream[Any]:
        """Return the stream at an output of a step that keeps keys: it has keys if this stream has keys."""
        raise NotImplementedError

    def _same(self, name: str, operator: Operator, retry: Errors = ()) -> Stream[Any]:
        return self._at(self._then(name, operator, retry))

    def _port_of(self, name: str, other: object) -> Port:
        """Return the graph output of another stream; raise if it belongs to another job."""
        if isinstance(other, Parts):
            raise GraphError(f"step {name!r}: it takes one stream where {other.how_to_choose()}")
        if not isinstance(other, Steps):
            raise GraphError(f"step {name!r}: it takes streams of this job, not {other!r}")
        if other.job is not self.job:
            raise GraphError(
                f"step {name!r}: it takes streams of its own job {self.job.name!r}, and one of them belongs to "
                f"{'another job of that name' if other.job.name == self.job.name else f'the job {other.job.name!r}'}; "
                "begin both at sources of one Job"
            )
        return other.port

    if not TYPE_CHECKING:
        # A type checker knows which streams have a step. At run time the error explains what is missing.
        def __getattr__(self, step: str) -> Any:
            from tidewheel._program.keyed_stream import KeyedStream

            if not step.startswith("_") and not isinstance(self, KeyedStream) and hasattr(KeyedStream, step):
                raise KeysNeeded(f"{step} needs a stream with keys: put key_by first, .key_by(name, …).{step}(…)")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {step!r}")
