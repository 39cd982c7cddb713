"""AggregateCombiner: fold the messages of a keyed stream into partial results before the shuffle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidewheel._operators.aggregates.functions import Accumulators
from tidewheel._operators.aggregates.partial_results import FLUSH_ROWS, keyed, merged
from tidewheel._operators.base import Context
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._operators.keyed.message_buffer import MessageBuffer
from tidewheel._values import Batch, Shape


class AggregateCombiner(Combiner):
    """Fold many messages at a time into partial results by key and by the columns `by`."""

    def __init__(
        self, accumulators: Accumulators, context: Context, output_shape: Shape, by: Sequence[str] = ()
    ) -> None:
        """Take the accumulators of each group, and the shape of the partial results."""
        self.accumulators, self.context = accumulators, context
        self._output_shape, self._by = output_shape, by
        self._messages, self._waiting = MessageBuffer(), list[pa.Table]()
        self.aside: list[Batch] = []
        """Messages that `fold` does not fold; they are passed on unchanged."""

    @abstractmethod
    def fold(self, batch: Batch) -> list[pa.Table]:
        """Return the partial results of messages."""

    def add(self, batch: Batch) -> Iterator[Batch]:
        if len(batch):
            self._messages.add(batch, self._fold)
        if sum(table.num_rows for table in self._waiting) > FLUSH_ROWS:
            yield from self._partial_results()

    def finish(self) -> Iterator[Batch]:
        self._messages.finish(self._fold)
        yield from self._partial_results()

    def _fold(self, batch: Batch) -> None:
        self._waiting += self.fold(batch)

    def _partial_results(self) -> Iterator[Batch]:
        aside, self.aside = self.aside, []
        yield from aside
        if self._waiting:
            whole = merged(self._waiting, self.accumulators, self.context, self._by)
            self._waiting = []
            for chunk in whole.combine_chunks().to_batches():
                yield keyed(self._output_shape, chunk.select(chunk.schema.names[1:]), chunk.column(0))
