"""Compile every Triton kernel for a GPU that need not be there; run by test_compile.py in a process of its own."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from chronospike.nn.kernels import attention, attention_kernels, fetch, lif, losses, readout_kernels, sums
from chronospike.sampling import triton_backend

WHOLE = {
    **dict.fromkeys(("nodes", "slots", "history_offsets", "history_neighbours"), "*i32"),
    **dict.fromkeys(("snapshot_offsets", "snapshot_neighbours"), "*i32"),
    **dict.fromkeys(("blocks", "key", "keys", "history_start", "snapshot_start"), "*i64"),
}
HALVES = dict.fromkeys(("x", "host", "hot"), "*fp16")
NUMBERS = dict.fromkeys(("scale", "slope", "u_reset", "rate", "eps", "smoothing", "share"), "fp32")
COUNTS = {
    "n", "rows", "columns", "targets", "start", "count", "first_part", "adds", "per_scale", "hot_count",
    "programs", "shares", "steps", "size", "drop", "tree_columns", "roots", "first", "following", "base",
}  # fmt: skip


def compile_one(kernel: Any, constants: dict[str, Any], warps: int = 4, stages: int = 3, **types: str) -> None:
    known = {**WHOLE, **HALVES, **NUMBERS, **dict.fromkeys(COUNTS, "i32"), **types}
    signature = {name: "constexpr" if name in constants else known.get(name, "*fp32") for name in kernel.arg_names}
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    # As torch's tensors are: what is aligned is read ahead into shared memory, and takes more of it.
    pointers = [i for i, name in enumerate(kernel.arg_names) if signature[name].startswith("*")]
    aligned = {(i,): [["tt.divisibility", 16]] for i in pointers}
    source = ASTSource(fn=kernel, signature=signature, constexprs=values, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages})
    # What every GPU since Ampere has.
    assert made.metadata.shared <= 99 * 1024, (kernel.__name__, made.metadata.shared)
    print(kernel.__name__, made.metadata.shared, flush=True)


def compile_attention(source: dict[str, Any], heads: dict[str, int]) -> None:
    """As they are for the features, which are gathered, and for spikes, which are not."""
    halves = dict.fromkeys(("own", "near", "own_grad", "near_grad", "grad", "out"), "*fp16")
    halves["x"] = "*fp16" if source["GATHER"] else "*fp32"
    channels = heads["PART"] * heads["HEADS"]
    features = {"WIDTH": 128, "BD": 128}

    def compile_shaped(kernel: Any, shape: attention._Shape, constants: dict[str, Any], **types: str) -> None:
        stages = shape.stages if source["GATHER"] else min(3, shape.stages)
        compile_one(kernel, {**constants, "BM": shape.rows}, shape.warps, stages, **{**halves, **types})

    dense = {**source, **features, "CHANNELS": channels, "BC": channels}
    compile_shaped(attention_kernels.project_kernel, attention._PROJECT, dense)
    hop = {**heads, "FANOUT": 5}
    compile_shaped(attention_kernels.mix_kernel, attention._MIX, hop, out="*fp32")
    back = attention._MIX_BACK._replace(warps=channels // 8)
    compile_shaped(attention_kernels.mix_back_kernel, back, {**hop, "HALF": True})
    sums = {**source, **heads, **features, "BD": attention._SUMS // channels}
    compile_shaped(attention_kernels.weights_kernel, attention._WEIGHTS, sums)
    inputs = {**heads, **features, "HALF": True, "GROUPS": 1}
    compile_shaped(attention_kernels.inputs_kernel, attention._INPUTS, inputs)


def main() -> None:
    for gathers, part in ((True, 32), (False, 16)):
        compile_attention({"GATHER": gathers, "HALF": True}, {"PART": part, "HEADS": 4, "HP": 4, "PP": part})
    compile_one(attention_kernels.finish_kernel, {"PART": 32, "HEADS": 4, "BC": 128})
    neurons = {"CHANNELS": 128, "DROPOUT": True}
    compile_one(lif._forward_kernel, {**neurons, "KEEP": True, "BLOCK": 512})
    for mode in lif._MODES.values():
        compile_one(lif._backward_kernel, {**neurons, "MODE": mode, "ROWS": 8, "WIDTH": 128})
    pool = {"CHANNELS": 64, "HEADS": 4, "BT": 32, "BC": 64}
    compile_one(readout_kernels.pool_kernel, pool, nodes="i32")
    compile_one(readout_kernels.pool_back_kernel, pool, nodes="i32")
    fold = {"CHANNELS": 64, "HEADS": 4, "HALF": True, "BM": 16, "BC": 64, "BH": 16}
    read = {**fold, "WIDE": 128, "CLASSES": 10, "BF": 128, "BK": 16}
    compile_one(readout_kernels.fold_kernel, fold, nodes="i32")
    compile_one(readout_kernels.fold_back_kernel, fold, stages=1, nodes="i32")
    compile_one(readout_kernels.read_kernel, read, nodes="i32")
    compile_one(readout_kernels.read_back_kernel, read, stages=1, nodes="i32")
    views = {"CHANNELS": 64, "DROPOUT": True, "BM": 16, "BC": 64}
    rows = {"CHANNELS": 64, "CLASSES": 10, "WEIGHTED": True, "VALID": True, "PAIRS": True, "HALF": True}
    rows = {**rows, "BM": 16, "BN": 64, "BC": 64, "BK": 16}
    for kernel, constants, stages in (
        (losses._views_kernel, views, 3),
        (losses._rows_kernel, rows, 3),
        (losses._finish_kernel, {"BLOCK": 128}, 3),
        (losses._back_kernel, {**rows, "DROPOUT": True}, 2),
    ):
        compile_one(kernel, constants, 4, stages, nodes="i32", valid="*i8", targets="*i64")
    for parts, columns in (sums._WIDE, sums._TALL):
        compile_one(sums._add_up_kernel, {"PARTS": parts, "COLUMNS": columns})
    compile_one(fetch._fetch_kernel, {"WIDTH": 128, "ROWS": 32, "BD": 128}, out="*fp16")
    hop = {"WIDTH": 5, "FANOUT": 2, "PAD": 2, "LAG": 1, "BLOCK": 128}
    for split, replaces in ((-1, False), (1, True)):
        constants = {**hop, "SPLIT": split, "REPLACE": replaces}
        compile_one(triton_backend._hop_kernel, constants, threshold="i64", steps="*i64", total="i32")


if __name__ == "__main__":
    main()
