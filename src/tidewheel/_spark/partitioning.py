"""Rows to the task that a column names, in every version of Spark 4."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_HAS_IDS = hasattr(DataFrame, "repartitionById")
_BITS = 0xFFFFFFFF


def partitioned(frame: DataFrame, parallelism: int, target: Column) -> DataFrame:
    """Return the frame with each row in the partition that `target`, an int column from 0 to `parallelism` - 1, names.

    Spark 4.0 has no `repartitionById`. It places a row by the hash of a column, so there the column holds, for each target, a
    number whose hash lands on it.
    """
    if _HAS_IDS:
        return frame.repartitionById(parallelism, target)
    numbers = F.array(*map(F.lit, landing_numbers(parallelism)))
    return frame.repartition(parallelism, F.element_at(numbers, target + 1))


@lru_cache(maxsize=64)
def landing_numbers(parallelism: int) -> tuple[int, ...]:
    """Return for each partition the least number from 0 whose hash Spark places there.

    >>> [spark_hash(number) % 4 for number in landing_numbers(4)]
    [0, 1, 2, 3]
    """
    numbers: dict[int, int] = {}
    number = 0
    while len(numbers) < parallelism:
        numbers.setdefault(spark_hash(number) % parallelism, number)
        number += 1
    return tuple(numbers[partition] for partition in range(parallelism))


def spark_hash(number: int) -> int:
    """Return Spark's `hash` of an int: Murmur3 of its four bytes with seed 42, signed.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    mixed = _rotated(number * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    hashed = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & _BITS
    hashed ^= 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _BITS
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _BITS
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(bits: int, by: int) -> int:
    return (bits << by | bits >> (32 - by)) & _BITS
