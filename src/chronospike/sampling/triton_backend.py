"""The sampler as one Triton kernel per hop, a lane per parent, for a GPU that holds the graph.

Every draw and every rule is that of `numba_backend.py`; the trees are the same to the bit.

Import this module only where Triton is installed. With TRITON_INTERPRET=1 it runs on the CPU, for tests.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from chronospike import rng
from chronospike.data.csr import IntArray
from chronospike.data.graph import DynamicGraph
from chronospike.sampling.hybrid import SamplingSettings
from chronospike.triton_common import derive, on

_PARENTS = 128


@triton.jit
def _below(word, bound):  # type: ignore[no-untyped-def]
    return (((word >> 32) * bound.to(tl.uint64)) >> 32).to(tl.int64)


@triton.jit
def _is_history(word, j, threshold, SPLIT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Whether slot j takes the history: the first SPLIT slots, or by chance where SPLIT is below zero."""
    if SPLIT < 0:
        return ((word & 0xFFFFFFFF).to(tl.int64) < threshold).to(tl.int64)
    return ((word * 0).to(tl.int64) + j < SPLIT).to(tl.int64)


# Sizes of a graph and of a batch: a kernel compiled for one is there for all.
_SIZES = ["threshold", "columns", "tree_columns", "roots", "first", "following", "base", "total"]


@triton.jit(do_not_specialize=_SIZES)
def _hop_kernel(  # type: ignore[no-untyped-def]
    nodes, key, keys, steps, history_start, history_offsets, history_neighbours, snapshot_start, snapshot_offsets,
    snapshot_neighbours, threshold, columns, tree_columns, roots, first, following, base, total,
    WIDTH: tl.constexpr, FANOUT: tl.constexpr, PAD: tl.constexpr, SPLIT: tl.constexpr, LAG: tl.constexpr,
    REPLACE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < total
    row = lane // (roots * WIDTH)
    parent = lane - row * (roots * WIDTH)
    tree = nodes + row * tree_columns
    step = tl.load(steps + row, mask=inside, other=0)
    root = tl.load(tree + parent // WIDTH, mask=inside, other=0)
    node = tl.load(tree + first + parent, mask=inside, other=0).to(tl.int64)
    root_key = tl.load(keys + root, mask=inside, other=0).to(tl.uint64)
    stream = derive(derive(tl.load(key).to(tl.uint64), root_key), step)
    slot = base + (parent % WIDTH) * FANOUT
    cell = node * columns + step
    known = tl.load(history_offsets + cell + LAG, mask=inside, other=0).to(tl.int64)
    earlier = tl.load(snapshot_offsets + cell, mask=inside, other=0).to(tl.int64)
    active = tl.load(snapshot_offsets + cell + 1, mask=inside, other=0).to(tl.int64) - earlier
    history_row = tl.load(history_start + node, mask=inside, other=0).to(tl.int64)
    snapshot_row = tl.load(snapshot_start + node, mask=inside, other=0).to(tl.int64) + earlier
    in_history = tl.zeros([BLOCK], dtype=tl.int64)
    for j in range(FANOUT):
        in_history += _is_history(derive(stream, slot + j), j, threshold, SPLIT)
    history_rank = tl.zeros([BLOCK], dtype=tl.int64)
    index = tl.arange(0, PAD)
    tags = tl.full([BLOCK, PAD], -1, dtype=tl.int64)
    for j in range(FANOUT):
        word = derive(stream, slot + j)
        view = _is_history(word, j, threshold, SPLIT)
        # `rank` counts the slots before this one, of `slots` in all, that take the same view.
        stored = tl.where(view > 0, known, active)
        slots = tl.where(view > 0, in_history, FANOUT - in_history)
        rank = tl.where(view > 0, history_rank, j - history_rank)
        history_rank += view
        # The node itself is the last neighbour in either view, at the index after the stored ones.
        degree = stored + 1
        if REPLACE:
            pick = _below(word, degree)
        else:
            few = degree <= slots
            newest = degree - slots + rank
            pick = _below(word, tl.where(few, degree, newest + 1))
            pick = tl.where(few & (rank < degree), rank, pick)
            # Floyd: each draw admits one index more; a repeat becomes the newly admitted one.
            seen = tl.max((tags == (2 * pick + view)[:, None]).to(tl.int32), axis=1) > 0
            pick = tl.where(seen & (degree > slots), newest, pick)
            tags = tl.where((index == j)[None, :], (2 * pick + view)[:, None], tags)
        other = pick < stored
        from_history = tl.load(history_neighbours + history_row + pick, mask=inside & other & (view > 0), other=0)
        from_snapshot = tl.load(snapshot_neighbours + snapshot_row + pick, mask=inside & other & (view == 0), other=0)
        drawn = tl.where(other, tl.where(view > 0, from_history, from_snapshot).to(tl.int64), node)
        tl.store(tree + following + parent * FANOUT + j, drawn.to(tl.int32), mask=inside)


class TritonBackend:
    """Samples with one launch per hop from a graph that the device holds."""

    def __init__(self, graph: DynamicGraph, device: torch.device) -> None:
        # In the dtypes they are stored in.
        self.views = [_tensor(array, device) for array in (*graph.history.flat(), *graph.snapshot.flat())]
        self.columns = graph.num_steps + 1
        self.keys = _tensor(graph.node_keys, device)
        self.device = device

    def sample(
        self, settings: SamplingSettings, key: int, roots: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> torch.Tensor:
        """`[T, M]` int32 nodes of the tree."""
        to = self.device
        root, step = torch.from_numpy(roots).to(to), torch.from_numpy(steps).to(to)
        return self.sample_tensors(settings, torch.tensor([rng.signed(key)], device=to), root, step)

    def sample_tensors(
        self, settings: SamplingSettings, key: torch.Tensor, roots: torch.Tensor, steps: torch.Tensor
    ) -> torch.Tensor:
        """The same from tensors on the device, `key [1]`, `roots [B]` and `steps [T]` in int64: nothing waits."""
        count, tree = len(roots), settings.tree_size
        nodes = torch.empty((len(steps), count * tree), dtype=torch.int32, device=self.device)
        nodes[:, :count] = roots
        first, width, base = 0, 1, 1
        with on(self.device):
            for fanout, split in zip(settings.fanouts, settings.history_slots, strict=True):
                following, total = first + count * width, len(steps) * count * width
                pad = triton.next_power_of_2(fanout)
                # Each lane remembers its picks in registers.
                block = min(_PARENTS, max(16, 2048 // pad))
                if total:
                    _hop_kernel[(triton.cdiv(total, block),)](
                        nodes, key, self.keys, steps, *self.views, settings.threshold, self.columns, count * tree,
                        count, first, following, base, total,
                        WIDTH=width, FANOUT=fanout, PAD=pad, SPLIT=split, LAG=settings.lag,
                        REPLACE=settings.replace, BLOCK=block,
                    )  # fmt: skip
                first, width = following, width * fanout
                base += width
        return nodes


def _tensor(array: IntArray, device: torch.device) -> torch.Tensor:
    """The array on the device; on the CPU it shares the memory, mapped read-only or not."""
    with warnings.catch_warnings():
        # Nothing here writes to the graph.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
