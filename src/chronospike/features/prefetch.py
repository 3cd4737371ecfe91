"""A hint to the CPU that a row of a table is about to be read and written.

Skip-gram jumps between rows that no hardware prefetcher can guess, but the walk and the negatives are known ahead.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

LINE_BYTES = 64
LINES = 8
"""At most this much of a row is asked for: 128 floats."""


def _prefetch_row(typing_context: Any, table: Any, row: Any) -> Any:
    """`prefetch_row(table, row)` for a contiguous 2-D `table`, inside compiled code."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], signature.args[1], types.intp)
        stride = cgutils.unpack_tuple(builder, array.strides, 2)[0]
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.gep(builder.bitcast(array.data, byte), [builder.mul(index, stride)])
        hint = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        for line in range(LINES):
            address = builder.gep(start, [ir.Constant(index.type, line * LINE_BYTES)])
            # For writing, keep in every cache level, data rather than instructions.
            builder.call(hint, [address, ir.Constant(word, 1), ir.Constant(word, 3), ir.Constant(word, 1)])
        return context.get_dummy_value()

    return types.void(table, row), generate


prefetch_row: Any = intrinsic(_prefetch_row)
