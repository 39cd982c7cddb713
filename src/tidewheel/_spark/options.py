"""How a job is run: what the caller of `Job.run` chose."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from tidewheel._engine.batch_loop import Trigger
from tidewheel._spark.progress import BatchProgress
from tidewheel._spark.trigger import check_trigger, interval
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidewheel._observe.metrics import Metrics


@dataclass(frozen=True)
class RunOptions:
    """How a job is run; what the program itself says is in the job."""

    bounded: bool = False
    trigger: Duration | None = None
    parallelism: int | None = None
    master: str | None = None
    restarts: int = 0
    backoff: float = 1.0
    take_over: bool = False
    allow_dropped_state: Collection[str] = ()
    allow_dropped_source: Collection[str] = ()
    drop_unpublished: Collection[str] = ()
    local: str | None = None
    shared_state: bool = False
    spark: SparkSession | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[BatchProgress], None] | None = None
    on_phase: Callable[[str | None], None] | None = None
    on_readers: Callable[[Mapping[str, str]], None] | None = None
    tick: float = 1.0
    history: str | timedelta | None = "7 days"
    node: str = ""
    finishes: bool = True
    """Whether a run that ends by itself delivers the epochs that are due. Not where it stands for one batch of a longer run."""
    metrics: Metrics | None = None

    def check_trigger(self) -> None:
        """Refuse what is no trigger for this run: nothing by that name, or a bounded run has a trigger of its own."""
        check_trigger(self.trigger)
        if self.trigger == "direct":
            warnings.warn(
                "trigger='direct' is what every run does now: leave the trigger out", DeprecationWarning, stacklevel=2
            )
        if self.bounded and self.trigger not in (None, "available-now"):
            raise ConfigError("a bounded run reads all there is and ends: it takes no trigger")

    @property
    def history_seconds(self) -> float | None:
        """How long history stays; None: there is none."""
        return None if self.history is None else nanoseconds(self.history, "history", least=1) / 1e9

    @property
    def ends_by_itself(self) -> bool:
        """Whether the run ends when it has read all there is."""
        return self.bounded or self.trigger in ("available-now", "once")

    def loop_trigger(self, *, ticks: bool) -> Trigger:
        """Return when the loop looks for data; `ticks`: batches run while there is none, too."""
        if self.ends_by_itself:
            return Trigger(ends=True)
        seconds = 0.0 if self.trigger in (None, "direct") else interval(self.trigger)
        return Trigger(seconds, self.tick if ticks else None)
