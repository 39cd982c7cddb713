"""Types of columns in files: the type that a program gets for a column, and the types that fit a declared type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_MOST_DIGITS = 38


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark has for the values of a type: no dictionaries, views, unsigned numbers or nanoseconds.

    A type for which Spark has none is returned as it is.

    >>> spark_type(pa.dictionary(pa.int32(), pa.large_string())), spark_type(pa.uint32()), spark_type(pa.timestamp("ns"))
    (DataType(string), DataType(int64), TimestampType(timestamp[us]))
    """
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return spark_type(kind.value_type)
    if kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return pa.string()
    if kinds.is_large_binary(kind) or kinds.is_binary_view(kind) or kinds.is_fixed_size_binary(kind):
        return pa.binary()
    if kinds.is_unsigned_integer(kind):
        return _SIGNED[kind]
    if kinds.is_float16(kind):
        return pa.float32()
    if kinds.is_date64(kind):
        return pa.date32()
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if _is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if kinds.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    if kinds.is_struct(kind):
        return pa.struct([(field.name, spark_type(field.type)) for field in kind])
    return kind


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column of a file may be read with the type of the source: a cast never changes a value."""
    found = spark_type(given)
    if found == wanted or kinds.is_null(found) or widens(found, wanted):
        return True
    if kinds.is_timestamp(found) and kinds.is_timestamp(wanted):
        # A zone only says how a time is shown, but a time without a zone is not an instant.
        return (found.tz is None) == (wanted.tz is None)
    if kinds.is_decimal(found) and kinds.is_decimal(wanted):
        return bool(found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale)
    if kinds.is_list(found) and kinds.is_list(wanted):
        return fits(found.value_type, wanted.value_type)
    if kinds.is_map(found) and kinds.is_map(wanted):
        return fits(found.key_type, wanted.key_type) and fits(found.item_type, wanted.item_type)
    if kinds.is_struct(found) and kinds.is_struct(wanted):
        return [field.name for field in found] == [field.name for field in wanted] and all(
            fits(one.type, other.type) for one, other in zip(found, wanted, strict=True)
        )
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_list(kind)
        or kinds.is_large_list(kind)
        or kinds.is_fixed_size_list(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
    )


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every value of one type is the same value of the other."""
    return bool(
        (kinds.is_signed_integer(given) and kinds.is_signed_integer(wanted) and given.bit_width < wanted.bit_width)
        or (kinds.is_float32(given) and kinds.is_float64(wanted))
    )
