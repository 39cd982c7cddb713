"""Find keys with a large share of the messages by counting a sample."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidewheel._core.text import shortened
from tidewheel._observe.records import ENOUGH_FOR_SHARES
from tidewheel._values import Batch

_NOTED_SHARE = 0.05
"""A key with more than this share of a batch is noted: over several batches its share may be worth a report."""
_NOTED = 10
"""How many keys of a `key_by` are noted at most, and how many a task reports."""
_FIRST, _LATER = 256, 32
"""The size of the sample of a batch of messages: for the first few batches of a task, and for all others."""
_FIRST_TIMES = 4
_HELD = 10_000
_LONGEST = 60

Counts = dict[str, float]


class KeySample:
    """Counts keys in a sample of one task's messages, by `key_by`."""

    def __init__(self, wanted: bool) -> None:
        """Count, or do nothing if the counts are not wanted."""
        self._wanted = wanted
        self._counters: dict[str, Counter[Any]] = {}
        self._times: Counter[str] = Counter()
        self._random = random.Random()

    def look_at(self, operator: str, batch: Batch) -> None:
        """Count a random sample of messages after `key_by`: a pattern in the data must not look like a hot key."""
        if not self._wanted or not len(batch):
            return
        counter = self._counters.setdefault(operator, Counter())
        self._times[operator] += 1
        size, most = len(batch), _FIRST if self._times[operator] <= _FIRST_TIMES else _LATER
        places = range(size) if size <= most else self._random.choices(range(size), k=most)
        weight = size / len(places)
        keys, column = batch.keys_made, batch.key_data
        if keys is not None:
            sample = [keys[place] for place in places]
        elif column is not None:
            sample = _taken(column, pa.array(places, pa.int64())).to_pylist()
        else:
            return
        for key, times in Counter(sample).items():
            counter[key] += times * weight  # type: ignore[assignment]  # a message stands for several
        if len(counter) > _HELD:
            self._counters[operator] = Counter(dict(counter.most_common(_HELD // 10)))

    def found(self) -> dict[str, Counts]:
        """Return the most frequent keys of each `key_by`, as Python shows them, each with about how many messages it has."""
        return {
            operator: {
                shortened(key, _LONGEST, told_apart=True): float(times) for key, times in counter.most_common(_NOTED)
            }
            for operator, counter in self._counters.items()
        }


def _taken(column: pa.Array, places: pa.Array) -> pa.Array:
    """Return some values of a column. Plain values convert to Python much faster than dictionary-encoded ones."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary.take(column.indices.take(places))
    return column.take(places)


def hot_keys(found: Iterable[Mapping[str, Counts]], messages: Mapping[str, int]) -> dict[str, Counts]:
    """Return the keys with a share of a batch worth noting, from what its tasks found and how many messages each `key_by` had.

    >>> hot_keys([{"by": {"7": 200.0, "8": 30.0}}, {"by": {"7": 100.0}}], {"by": 1000})
    {'by': {'7': 0.3}}
    """
    sums: dict[str, Counter[str]] = {}
    for each in found:
        for operator, counts in each.items():
            counter = sums.setdefault(operator, Counter())
            for key, times in counts.items():
                counter[key] += times  # type: ignore[assignment]  # an estimate
    hot = {}
    for operator, counter in sums.items():
        total = messages.get(operator, 0)
        if total >= ENOUGH_FOR_SHARES:
            shares = {key: min(1.0, round(times / total, 3)) for key, times in counter.most_common(_NOTED)}
            hot[operator] = {key: share for key, share in shares.items() if share > _NOTED_SHARE}
    return {operator: shares for operator, shares in hot.items() if shares}
