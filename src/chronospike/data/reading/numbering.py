"""Values of one or more columns, numbered in their own order: integers by size, text by letters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.data.csr import IntArray, smallest_int
from chronospike.data.ids import NodeIds, whole_numbers, whole_or_null


def number_values(*columns: pa.ChunkedArray) -> tuple[NodeIds, list[IntArray]]:
    """The distinct values of all columns together, and each column as indices into them.

    Values are sorted, so that the numbering does not depend on the order of the rows.

    Args:
        columns: without nulls; numbers or text. Where one is text, all are numbered as text.
    """
    columns = tuple(whole_numbers(column) for column in columns)
    if any(column.type != columns[0].type for column in columns):
        columns = tuple(column.cast(pa.large_string()) for column in columns)
    chunks = [chunk for column in columns for chunk in column.chunks]
    values, codes = distinct_values(pa.chunked_array(chunks, type=columns[0].type))
    order = _order(values)
    rank = np.empty(len(order), dtype=smallest_int(max(len(order) - 1, 2**15)))
    rank[order] = np.arange(len(order), dtype=rank.dtype)
    bounds = np.cumsum([len(column) for column in columns])[:-1]
    return NodeIds(values.take(pa.array(order))), list(np.split(rank[codes], bounds))


def _order(values: pa.Array) -> NDArray[np.int64]:
    """The places of the values in ascending order: whole numbers by size, then text by letters.

    Numbers come first among text too, so that a name which turns up later leaves their order as it was.
    """
    by_letters = np.asarray(pc.sort_indices(values).to_numpy(), dtype=np.int64)
    if not pa.types.is_large_string(values.type):
        return by_letters
    numbers = whole_or_null(values).take(pa.array(by_letters))
    size = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return by_letters[np.lexsort((size, np.asarray(numbers.is_null().to_numpy(zero_copy_only=False))))]


def distinct_values(column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int32]]:
    """The distinct values in the order of their first occurrence, and `[E]` each value's place among them."""
    encoded = column.dictionary_encode()
    if not encoded.num_chunks:
        return pa.array([], type=column.type), np.zeros(0, dtype=np.int32)
    # All chunks share one dictionary; joining them through Arrow would hash it again for each.
    return encoded.chunk(0).dictionary, np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])


def positions_in(ids: NodeIds, column: pa.ChunkedArray) -> NDArray[np.int64]:
    """`[K]` node index of each value, -1 where there is none."""
    distinct, (codes,) = number_values(column)
    return ids.lookup(distinct.values)[codes]


def to_numpy(tensor: Any) -> NDArray[Any]:
    """A tensor of torch as an array; numpy has neither bfloat16 nor sparse ones."""
    dense = tensor.detach().cpu().to_dense()
    array: NDArray[Any] = (dense.float() if str(dense.dtype) == "torch.bfloat16" else dense).numpy()
    return array


def as_column(values: Any) -> pa.ChunkedArray:
    """A list, numpy or Arrow array as a column; values of mixed types become text."""
    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, pa.Array):
        return pa.chunked_array([values])
    if hasattr(values, "detach"):
        values = to_numpy(values)
    if isinstance(values, np.ndarray):
        # What Arrow has no type for: dates by the hour, week, month or year, and another byte order.
        is_coarse = values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] in ("m", "h", "W", "M", "Y")
        values = values.astype("M8[s]" if is_coarse else values.dtype.newbyteorder("="), copy=False)
    try:
        return pa.chunked_array([pa.array(values, from_pandas=True)])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError):
        gaps = (value is None or (isinstance(value, float) and value != value) for value in values)
        texts = [None if is_gap else str(value) for is_gap, value in zip(gaps, values, strict=True)]
        return pa.chunked_array([pa.array(texts, type=pa.large_string())])
