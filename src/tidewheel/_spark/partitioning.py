"""Rows to the task that a column names, in every version of Spark 4."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import DataFrame

_HAS_IDS = hasattr(DataFrame, "repartitionById")
_BITS = 0xFFFFFFFF


def partitioned(frame: DataFrame, parallelism: int) -> DataFrame:
    """Return the frame with each row in the partition that its column `target`, an int from 0 to `parallelism` - 1, names.

    Spark before 4.2 has no `repartitionById`. It places a row by the hash of a column, so there a column holds, for each target,
    a number whose hash lands on it. Names and SQL text work in classic sessions and in those of Spark Connect.
    """
    if _HAS_IDS:
        return frame.repartitionById(parallelism, "target")
    numbers = ", ".join(map(str, landing_numbers(parallelism)))
    landing = frame.selectExpr("*", f"element_at(array({numbers}), target + 1) as landing")
    return landing.repartition(parallelism, "landing").drop("landing")


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
