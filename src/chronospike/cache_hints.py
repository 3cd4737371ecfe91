"""Hints to the CPU that memory is about to be used.

Sampling and skip-gram jump between rows that no hardware prefetcher can guess, but that are known a while ahead.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

LINE_BYTES = 64
ROW_LINES = 8
"""At most this much of a row is asked for: 128 floats."""


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """`prefetch(array, index)`: of a contiguous 1-D array an item to read, of a 2-D one a row to read and write."""
    del typing_context
    lines, write = (1, 0) if array.ndim == 1 else (ROW_LINES, 1)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        values = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        if array.ndim == 2:
            place = builder.mul(place, cgutils.unpack_tuple(builder, values.shape, 2)[1])
        start = builder.bitcast(builder.gep(values.data, [place]), byte)
        for line in range(lines):
            address = builder.gep(start, [ir.Constant(place.type, line * LINE_BYTES)])
            # For reading or writing, into every cache level, data.
            builder.call(hint, [address, *(ir.Constant(word, number) for number in (write, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetch)
