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


def _hint(builder: Any, address: Any, write: bool) -> None:
    """Ask for one cache line, for reading or writing, into every cache level."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    builder.call(prefetch, [address, ir.Constant(word, int(write)), ir.Constant(word, 3), ir.Constant(word, 1)])


def _prefetch_row(typing_context: Any, table: Any, row: Any) -> Any:
    """`prefetch_row(table, row)` for a contiguous 2-D `table` that will be read and written."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], signature.args[1], types.intp)
        stride = cgutils.unpack_tuple(builder, array.strides, 2)[0]
        data = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        start = builder.gep(data, [builder.mul(index, stride)])
        for line in range(ROW_LINES):
            _hint(builder, builder.gep(start, [ir.Constant(index.type, line * LINE_BYTES)]), write=True)
        return context.get_dummy_value()

    return types.void(table, row), generate


def _prefetch_item(typing_context: Any, array: Any, index: Any) -> Any:
    """`prefetch_item(array, index)` for a contiguous 1-D `array` that will be read at `index`."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = context.cast(builder, arguments[1], signature.args[1], types.intp)
        address = builder.gep(values.data, [place])
        _hint(builder, builder.bitcast(address, ir.IntType(8).as_pointer()), write=False)
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch_row: Any = intrinsic(_prefetch_row)
prefetch_item: Any = intrinsic(_prefetch_item)
