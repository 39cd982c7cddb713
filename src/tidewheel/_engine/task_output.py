"""The output of a task for sinks, staged until the batch is committed, with rejected records for the dead-letter sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidewheel._cells.live import empty_cells
from tidewheel._connectors.sink import SinkPartition, Staging
from tidewheel._core import faults
from tidewheel._core.text import cut, shortened, valid
from tidewheel._core.transient import is_transient
from tidewheel._core.user_code import described, summary, user_traceback
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Staged
from tidewheel._observe.records import DeadLetter
from tidewheel._observe.redaction import beginning, ending
from tidewheel._operators.accepted import OF_THE_RUN
from tidewheel._operators.graph import Node
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._values import Batch
from tidewheel._values.json_text import json_text, key_text
from tidewheel.errors import Retry, StepError

OUTPUT_PREPARED = faults.declare("task.output-prepared", "a task's output is staged")

DEAD_LETTER_SCHEMA = pa.schema([(name, pa.string()) for name in ("step", "key", "record", "error", "traceback")])
"""The columns of a dead-letter sink."""

Letter = dict[str, str | None]
"""A row of a dead-letter sink."""
_DEAD_LETTERS, _DEAD_BYTES = 1000, 16 << 20
"""How many rejected records are written at once, and how many characters of them."""
_SHORTEST = 1000
"""How many characters a text of a dead letter has at the least before the sink's refusal ends the batch."""
_LETTERS = 3
"""How many of a step's rejected records a task reports."""
_LETTER_TEXT, _LETTER_TRACEBACK = 500, 4000


class TaskOutput:
    """The output of one attempt of a task. A sink is opened at its first row."""

    def __init__(self, plan: Plan, staging: Callable[[str], Staging], *, silent: bool = False) -> None:
        """Take the plan, and a function that returns where this attempt stages for a sink. `silent`: only count rows."""
        self._plan, self._staging, self._silent = plan, staging, silent
        self._written: dict[str, tuple[SinkPartition, int]] = {}
        self._dead_letters: list[Letter] = []
        self._dead_bytes = 0
        self.rejected = 0
        self.rejected_by: dict[str, int] = {}
        self.letters: list[DeadLetter] = []
        """The first few rejected records of each step, cut short."""

    def write(self, node: Node, columns: pa.RecordBatch) -> None:
        """Write rows to the sink of a node."""
        operator = node.operator
        assert isinstance(operator, SinkOperator)
        partition, rows = self._written.get(node.name) or (self._opened(node.name, operator), 0)
        self._written[node.name] = (partition, rows)
        partition.write(columns)
        self._written[node.name] = (partition, rows + columns.num_rows)

    def _opened(self, name: str, operator: SinkOperator) -> SinkPartition:
        return _NoPartition() if self._silent else operator.sink.open(self._staging(name))

    def reject(self, node: Node, error: Exception, batch: Batch, position: int, *, stop: bool = False) -> None:
        """Put a message aside that a step cannot take. Raise a `StepError` without a sink for it, or with `stop`."""
        key = batch.keys[position] if batch.keyed else None
        record = _record_of(batch, position)
        if stop or self._plan.dead_letter is None:
            about = f"key {shortened(key)}, " if batch.keyed else ""
            raise StepError(f"step {node.name!r}, {about}record {shortened(record)}: {described(error)}") from error
        letter = {
            "step": node.name,
            "key": None if key is None else valid(key_text(key)),
            "record": valid(json_text(record)),
            "error": f"{summary(error)}{empty_cells(error)}",
            "traceback": user_traceback(error) or None,
        }
        self._dead_letters.append(letter)
        self._dead_bytes += len(letter["record"] or "")
        self.rejected += 1
        number = self.rejected_by[node.name] = self.rejected_by.get(node.name, 0) + 1
        if number <= _LETTERS:
            self.letters.append(_dead_letter(letter))
        if len(self._dead_letters) >= _DEAD_LETTERS or self._dead_bytes >= _DEAD_BYTES:
            self._write_dead_letters()

    def prepare(self) -> dict[str, Staged]:
        """Make all written output durable; return the staged output by sink."""
        self._write_dead_letters()
        staged = {name: Staged(rows, partition.prepare()) for name, (partition, rows) in self._written.items()}
        if staged:
            faults.point(OUTPUT_PREPARED)
        return staged

    def _write_dead_letters(self) -> None:
        letters, self._dead_letters, self._dead_bytes = self._dead_letters, [], 0
        if self._plan.dead_letter is not None and letters:
            self._write_letters(self._plan.nodes[self._plan.dead_letter], letters)

    def _write_letters(self, node: Node, letters: list[Letter]) -> None:
        """Write dead letters. Where the sink does not take one, for it may be too large, it is written cut short."""
        try:
            self.write(node, pa.RecordBatch.from_pylist(letters, schema=DEAD_LETTER_SCHEMA))
        except (*OF_THE_RUN, OSError):
            raise
        except Exception as error:
            if is_transient(error):
                raise Retry(f"dead-letter sink {node.name!r}: {described(error)}") from error
            if len(letters) > 1:
                middle = len(letters) // 2
                self._write_letters(node, letters[:middle])
                self._write_letters(node, letters[middle:])
                return
            longest = max(len(text or "") for text in letters[0].values())
            if longest <= _SHORTEST:
                raise StepError(
                    f"the dead-letter sink {node.name!r} does not take a record that step {letters[0]['step']!r} "
                    f"rejected: {summary(error)}. Nothing is committed; give the job another dead-letter sink"
                ) from error
            limit = max(longest // 8, _SHORTEST // 2)
            self._write_letters(node, [{name: text and cut(text, limit) for name, text in letters[0].items()}])


class _NoPartition(SinkPartition):
    """Takes rows and stages nothing."""

    def write(self, columns: pa.RecordBatch) -> None:
        """Do nothing: `TaskOutput` counts the rows."""

    def prepare(self) -> bytes | None:
        return None


def _record_of(batch: Batch, position: int) -> Any:
    """Return a record for messages, even if Python cannot represent its values."""
    try:
        return batch.values[position]
    except Exception:
        row = batch.take([position])
    try:
        return row.values[0]
    except Exception:
        columns = row.carried
        assert columns is not None, "values that cannot be read are columns"
        return {name: str(columns.column(at)[0].cast(pa.string())) for at, name in enumerate(columns.schema.names)}


def _dead_letter(letter: Letter) -> DeadLetter:
    key = letter["key"]
    return DeadLetter(
        letter["step"] or "",
        None if key is None else key[:_LETTER_TEXT],
        (letter["record"] or "")[:_LETTER_TEXT],
        beginning(letter["error"] or "", _LETTER_TEXT),
        ending(letter["traceback"] or "", _LETTER_TRACEBACK),
    )
