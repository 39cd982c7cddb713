"""What a task writes to sinks: staged, so that it counts when the batch is committed; rejected records among it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tidewheel._cells.live import empty_cells
from tidewheel._connectors.sink import SinkPartition, Staging
from tidewheel._core import faults
from tidewheel._core.text import shortened
from tidewheel._core.user_code import described, summary, user_traceback
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Staged
from tidewheel._observe.records import DeadLetter
from tidewheel._observe.redaction import without_secrets
from tidewheel._operators.graph import Node
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._values import Batch
from tidewheel._values.json_text import json_text, key_text
from tidewheel.errors import OperatorError

OUTPUT_PREPARED = faults.declare("task.output-prepared", "a task's output is staged")

DEAD_LETTER_SCHEMA = pa.schema([(name, pa.string()) for name in ("operator", "key", "record", "error", "traceback")])
"""The columns of a dead-letter sink."""

_DEAD_LETTERS = 1000
"""How many rejected records are written at once."""
_LETTERS = 3
"""How many of an operator's rejected records a task tells of."""
_LETTER_TEXT, _LETTER_TRACEBACK = 500, 4000


class TaskOutput:
    """The output of one attempt of a task. A sink is opened at its first row."""

    def __init__(self, plan: Plan, staging: Callable[[str], Staging]) -> None:
        """Take the plan, and a function that returns where this attempt stages for a sink."""
        self._plan, self._staging = plan, staging
        self._written: dict[str, tuple[SinkPartition, int]] = {}
        self._dead_letters: list[dict[str, str | None]] = []
        self.rejected = 0
        self.rejected_by: dict[str, int] = {}
        self.letters: list[DeadLetter] = []
        """The first few rejected records of each operator, cut short."""

    def write(self, node: Node, columns: pa.RecordBatch) -> None:
        """Write rows to the sink of a node."""
        operator = node.operator
        assert isinstance(operator, SinkOperator)
        partition, rows = self._written.get(node.name) or (operator.sink.open(self._staging(node.name)), 0)
        self._written[node.name] = (partition, rows + columns.num_rows)
        partition.write(columns)

    def reject(self, node: Node, error: Exception, batch: Batch, position: int) -> None:
        """Put a message aside that an operator cannot take; an `OperatorError` where there is no dead-letter sink."""
        key = batch.keys[position] if batch.keyed else None
        record = batch.values[position]
        if self._plan.dead_letter is None:
            about = f"key {key!r}, " if batch.keyed else ""
            raise OperatorError(
                f"operator {node.name!r}, {about}record {shortened(record)}: {described(error)}"
            ) from error
        letter = {
            "operator": node.name,
            "key": None if key is None else key_text(key),
            "record": json_text(record),
            "error": f"{summary(error)}{empty_cells(error)}",
            "traceback": user_traceback(error) or None,
        }
        self._dead_letters.append(letter)
        self.rejected += 1
        number = self.rejected_by[node.name] = self.rejected_by.get(node.name, 0) + 1
        if number <= _LETTERS:
            self.letters.append(_told(letter))
        if len(self._dead_letters) >= _DEAD_LETTERS:
            self._write_dead_letters()

    def prepare(self) -> dict[str, Staged]:
        """Make all that was written durable; return what was staged, by sink."""
        self._write_dead_letters()
        staged = {name: Staged(rows, partition.prepare()) for name, (partition, rows) in self._written.items()}
        if staged:
            faults.point(OUTPUT_PREPARED)
        return staged

    def _write_dead_letters(self) -> None:
        if self._plan.dead_letter is not None and self._dead_letters:
            rows = pa.RecordBatch.from_pylist(self._dead_letters, schema=DEAD_LETTER_SCHEMA)
            self.write(self._plan.nodes[self._plan.dead_letter], rows)
            self._dead_letters = []


def _told(letter: dict[str, str | None]) -> DeadLetter:
    key, traceback = letter["key"], without_secrets(letter["traceback"] or "")
    return DeadLetter(
        letter["operator"] or "",
        None if key is None else key[:_LETTER_TEXT],
        (letter["record"] or "")[:_LETTER_TEXT],
        without_secrets(letter["error"] or "")[:_LETTER_TEXT],
        traceback[-_LETTER_TRACEBACK:],
    )
