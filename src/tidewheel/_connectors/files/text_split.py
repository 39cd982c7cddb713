"""Text files as tasks read them: a record is a line, or the whole file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._connectors.files.line_split import NOT_UTF8, Fault, LineSplit, NotPlain
from tidewheel._connectors.files.lines import Block
from tidewheel._values.columns import without_columns


@dataclass(frozen=True)
class TextSplit(LineSplit):
    """Lines of a text file; with `whole`, all of them in one record."""

    whole: bool = False

    @property
    def by_line(self) -> bool:
        return not self.whole

    def read(self) -> Iterator[pa.RecordBatch]:
        if not self.whole:
            yield from super().read()
            return
        text = b"".join(block.text for block in self._blocks())
        yield self.partitions.added(self._of_lines([(0, text)]))

    def _fast(self, block: Block) -> pa.RecordBatch:
        try:
            lines = [line.decode() for line in block.lines()]
        except UnicodeDecodeError as error:
            raise NotPlain from error
        return self._batch([lines][: len(self.columns)], []) if len(self.columns) else without_columns(len(lines))

    def _exact(self, block: Block) -> pa.RecordBatch:
        return self._of_lines([(block.line + number, line) for number, line in enumerate(block.lines())])

    def _of_lines(self, lines: list[tuple[int, bytes]]) -> pa.RecordBatch:
        texts, faults = [], []
        for number, line in lines:
            try:
                texts.append(line.decode())
            except UnicodeDecodeError:
                faults.append((number, line, Fault(NOT_UTF8)))
        records = self._batch([texts], []) if len(self.columns) else without_columns(len(texts))
        return self._with_faults(records, faults)
