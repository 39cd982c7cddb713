"""Shared reading: every task reads the whole batch, and keeps the records of its own keys.

Reading a column of a local file takes less time than dividing it, carrying it through a shuffle and taking it apart again. So
where the key is a column of the source and tasks are few, none of that is done. A task finds the records of a key in the order
in which they stand in the source, whatever the number of tasks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel._core.hashing import shards_of_column
from tidewheel._engine.shards import task_of_each
from tidewheel._values.columns import is_encoded_text, repeats


class Share:
    """The records of a batch that belong to one of the tasks that read it."""

    def __init__(self, key: str, n_shards: int, parallelism: int, task: int) -> None:
        """Take the key's column, which has text or integers, and which task of how many this is."""
        self.key, self._n_shards, self._parallelism, self._task = key, n_shards, parallelism, task
        self._dictionary: pa.Array | None = None
        self._is_own_code: npt.NDArray[np.bool_] = np.empty(0, bool)
        self.looked_through = 0
        """Records that were there."""
        self.kept = 0
        """Records that belong to the task."""

    def of(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the task's own records among these, in their order."""
        own = columns.take(pa.array(np.flatnonzero(self._is_own(columns.column(self.key)))))
        self.looked_through += columns.num_rows
        self.kept += own.num_rows
        return own

    def _is_own(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each key whether it is the task's. Records without a key go to the first task: `key_by` refuses them."""
        own: npt.NDArray[np.bool_]
        if is_encoded_text(keys.type):
            if keys.null_count == keys.dictionary.null_count == 0:
                own = self._has_codes(keys.dictionary)[keys.indices.to_numpy()]
                return own
            keys = keys.dictionary_decode()
        is_text = pa.types.is_string(keys.type)
        present = pc.fill_null(keys, "" if is_text else 0) if keys.null_count else keys
        if is_text and repeats(present):
            # Each distinct key is asked once.
            codes = present.dictionary_encode()
            own = self._has(codes.dictionary)[codes.indices.to_numpy()]
        else:
            own = self._has(present if is_text else present.cast(pa.int64()))
        if keys.null_count:
            own[keys.is_null().to_numpy(zero_copy_only=False)] = self._task == 0
        return own

    def _has_codes(self, dictionary: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each key of a dictionary whether it is the task's. The batches of a file often have the same dictionary."""
        if self._dictionary is None or not self._dictionary.equals(dictionary):
            self._dictionary, self._is_own_code = dictionary, self._has(dictionary)
        return self._is_own_code

    def _has(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        tasks = task_of_each(shards_of_column(keys, self._n_shards), self._parallelism)
        return np.equal(tasks, self._task)
