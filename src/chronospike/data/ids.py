"""The user's own node ids: kept as they were given, mapped to 0..N-1 and back.

Ids that are all plain integers are held as int64. Anything else ("007", "user-12", "1.0") is held as text,
one UTF-8 buffer and its offsets, so that it opens by memory map and comes back letter for letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chronospike.errors import InputError

PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
# Up to here floats of so many bits hold every whole number.
_EXACT = {16: 2**11, 32: 2**24, 64: 2**53}


class NodeIds:
    """An immutable list of N distinct ids, in the order of the node indices."""

    def __init__(self, values: pa.Array) -> None:
        """`values` is an Arrow int64 or large_string array without nulls or repeats."""
        self.values = values

    @classmethod
    def range(cls, count: int) -> NodeIds:
        """0, 1, …, count - 1."""
        return cls(pa.array(np.arange(count, dtype=np.int64)))

    @classmethod
    def of(cls, values: Any) -> NodeIds:
        """From any sequence, numpy or Arrow array of distinct ids, in the order given."""
        array = as_id_array(values)
        if len(array.unique()) != len(array):
            raise InputError(f"node ids repeat: {len(array)} ids, {len(array.unique())} distinct")
        return cls(array)

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_large_string(self.values.type))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> int | str:
        value: int | str = self.values[int(index)].as_py()
        return value

    def __iter__(self) -> Iterator[int | str]:
        return iter(self.values.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeIds) and bool(self.values.equals(other.values))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[i]) for i in range(min(3, len(self))))
        return f"NodeIds({len(self):,}: {shown}{', …' if len(self) > 3 else ''})"

    def take(self, indices: NDArray[np.integer[Any]]) -> pa.Array:
        """The ids of these node indices, as an Arrow array of int64 or text."""
        return self.values.take(pa.array(np.asarray(indices, dtype=np.int64)))

    def lookup(self, ids: Any) -> NDArray[np.int64]:
        """`[K]` node index of each id, -1 where there is none. `5` and `"5"` are the same id."""
        array = as_id_array(ids)
        if array.type != self.values.type:
            array = array.cast(pa.large_string()) if self.is_text else whole_or_null(array)
        found = pc.index_in(array, value_set=self.values)
        return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)

    def keys(self) -> NDArray[np.int64]:
        """`[N]` a number for each id that depends on nothing but the id, to key random draws with.

        A whole number is its own key, also where it is held as text; other text has a 64-bit hash.
        """
        if not self.is_text:
            return np.asarray(self.values.to_numpy())
        # Numba takes a while to load, and most of what is done with ids does not need it.
        from chronospike.rng_kernels import hash_texts

        held, keys = self.to_arrays(), np.empty(len(self), dtype=np.int64)
        hash_texts(held["id_bytes"], held["id_offsets"], keys)
        whole = whole_or_null(self.values)
        is_whole = whole.is_valid().to_numpy(zero_copy_only=False)
        keys[is_whole] = whole.drop_null().to_numpy()
        # As those of integers are: compiled kernels then see one kind of array.
        keys.flags.writeable = False
        return keys

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As numpy arrays for storage: `ids`, or `id_bytes` and `id_offsets`."""
        if not self.is_text:
            return {"ids": self.values.to_numpy()}
        values = pa.concat_arrays([self.values])
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
        text = np.frombuffer(data if data is not None else b"", dtype=np.uint8)[bounds[0] : bounds[-1]]
        return {"id_bytes": text, "id_offsets": bounds - bounds[0]}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> NodeIds:
        """The inverse of `to_arrays`; nothing is copied."""
        if "ids" in arrays:
            return cls(pa.array(np.asarray(arrays["ids"])))
        offsets, text = arrays["id_offsets"], arrays["id_bytes"]
        buffers = [None, pa.py_buffer(np.asarray(offsets)), pa.py_buffer(np.asarray(text))]
        return cls(pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers))


def as_id_array(values: Any) -> pa.Array:
    """Ids as an Arrow int64 array when each is a plain integer, else as large_string."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        values = _from_python(values)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return whole_numbers(values)


def _from_python(values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufU":
        return pa.array(values)
    if hasattr(values, "detach"):
        values = values.tolist()
    # A text is one id, not a list of letters.
    items: Sequence[Any] = [values] if isinstance(values, str) or not hasattr(values, "__iter__") else list(values)
    if all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in items):
        with suppress(OverflowError):
            return pa.array([int(item) for item in items], type=pa.int64())
    return pa.array([None if item is None else str(item) for item in items], type=pa.large_string())


def whole_numbers(values: Any) -> Any:
    """A column or an array as int64 if all is whole (pandas makes floats of integers beside a gap), else as text.

    Text is taken for whole numbers only if all of it is written the plain way, so that "007" stays what it is.
    """
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        whole = len(values) > 0 and pc.all(pc.match_substring_regex(values, PLAIN_INTEGER), min_count=0).as_py()
    elif pa.types.is_floating(kind):
        _refuse_rounded(values)
        values = values.cast(pa.float32()) if kind.bit_width == 16 else values  # Arrow computes little with halves
        whole = pc.all(pc.equal(values, pc.trunc(values)), min_count=0).as_py()
    else:
        whole = pa.types.is_integer(kind)
    try:
        return values.cast(pa.int64() if whole else pa.large_string())
    except pa.ArrowInvalid:
        return values.cast(pa.large_string())


def _refuse_rounded(values: Any) -> None:
    """Refuse floats so large that different ids may have become one: pandas makes floats of integers beside a gap."""
    limit = _EXACT[values.type.bit_width]
    numbers = values.cast(pa.float64())
    beyond = numbers.filter(pc.greater(pc.abs(numbers), float(limit)))
    if len(beyond):
        raise InputError(
            f"{beyond[0].as_py():.17g} is a floating-point number beyond {limit:,}, so its last digits may be lost. "
            "Give ids and classes as integers or as text"
        )


def whole_or_null(values: pa.Array) -> pa.Array:
    """Text as int64 where the number is written the plain way (no sign '+', no leading zero), else null."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    plain = pc.match_substring_regex(values, PLAIN_INTEGER)
    return pc.if_else(plain, values, pa.scalar(None, values.type)).cast(pa.int64())
