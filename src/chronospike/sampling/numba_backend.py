"""The sampler compiled for the CPU: one pass over the roots, each with its whole tree of all steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chronospike.cache_hints import prefetch
from chronospike.compiled import njit
from chronospike.data.graph import DynamicGraph
from chronospike.rng_kernels import below_numba, chance_numba, derive_numba
from chronospike.sampling.hybrid import SamplingSettings
from chronospike.threads import run_chunks


class NumbaBackend:
    """Samples on the CPU threads from the graph's own arrays, memory-mapped or not."""

    def __init__(self, graph: DynamicGraph, threads: int | None = None) -> None:
        self.history, self.snapshot = graph.history.flat(), graph.snapshot.flat()
        self.keys = graph.node_keys
        self.threads = threads

    def sample(
        self, settings: SamplingSettings, key: int, roots: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> torch.Tensor:
        """`[T, M]` int32 nodes of the tree."""
        nodes = torch.empty((len(steps), len(roots) * settings.tree_size), dtype=torch.int32, device="cpu")
        out = nodes.numpy()
        fanouts = np.array(settings.fanouts, dtype=np.int64)
        history_slots = np.array(settings.history_slots, dtype=np.int64)
        root_keys = self.keys[roots]

        def work(start: int, stop: int) -> None:
            _sample_roots(
                self.history, self.snapshot, roots, root_keys, steps, fanouts, history_slots,
                np.uint64(settings.threshold), settings.lag, settings.replace, np.uint64(key), start, stop, out,
            )  # fmt: skip

        run_chunks(work, len(roots), self.threads)
        return nodes


@njit
def _u(index: Any) -> Any:
    # An unsigned index spares numba its test for a negative one.
    return np.uint64(index)


# One long function: numba counts references whenever an array is passed on, which made a call for each node three
# times as slow. Hop by hop over all steps, not step by step: a node's offsets, asked for when it is drawn, have the
# time of the other steps' draws to arrive from memory.
@njit
def _sample_roots(
    history: Any, snapshot: Any, roots: Any, root_keys: Any, steps: Any, fanouts: Any, history_slots: Any,
    threshold: Any, lag: int, replace: bool, key: Any, start: int, stop: int, out: Any,
) -> None:  # fmt: skip
    """Fill the columns of the roots start..stop-1 in `out [T, M]`."""
    history_start, history_offsets, history_neighbours = history
    snapshot_start, snapshot_offsets, snapshot_neighbours = snapshot
    # Offsets are `[N, T + 1]` laid flat.
    columns = len(history_offsets) // (len(history_start) - 1)
    words = np.empty(fanouts.max(), dtype=np.uint64)
    tags = np.empty(fanouts.max(), dtype=np.int64)
    for b in range(start, stop):
        root_key = derive_numba(key, root_keys[b])
        out[:, b] = roots[b]
        # A hop has `width` positions per root, those of all roots beginning at `first`; `base` counts the positions of
        # this root's tree in the hops before.
        first, width, base = 0, 1, 1
        for hop in range(len(fanouts)):
            fanout, fixed = fanouts[hop], history_slots[hop]
            following = first + len(roots) * width
            is_last = hop + 1 == len(fanouts)
            for row in range(len(steps)):
                step = steps[row]
                step_key = derive_numba(root_key, step)
                nodes = out[row]
                slot = base
                for parent in range(b * width, (b + 1) * width):
                    node = np.int64(nodes[_u(first + parent)])
                    child = following + parent * fanout
                    cell = node * columns + step
                    known = np.int64(history_offsets[_u(cell + lag)])
                    earlier = np.int64(snapshot_offsets[_u(cell)])
                    active = np.int64(snapshot_offsets[_u(cell + 1)]) - earlier
                    if known + active == 0:
                        for j in range(fanout):
                            nodes[_u(child + j)] = node
                        slot += fanout
                        continue
                    in_history, history_rank = np.int64(0), np.int64(0)
                    for j in range(fanout):
                        word = derive_numba(step_key, slot + j)
                        view = np.int64(j < fixed if fixed >= 0 else chance_numba(word, threshold))
                        words[_u(j)], tags[_u(j)] = word, view
                        in_history += view
                    slot += fanout
                    history_row = np.int64(history_start[_u(node)])
                    snapshot_row = np.int64(snapshot_start[_u(node)]) + earlier
                    for j in range(fanout):
                        # `rank` counts the slots before this one, of `slots` in all, that take the same view.
                        view = tags[_u(j)]
                        stored = known if view else active
                        slots = in_history if view else fanout - in_history
                        rank = history_rank if view else j - history_rank
                        history_rank += view
                        # The node itself is the last neighbour in either view, at the index after the stored ones.
                        degree = stored + 1
                        if stored == 0:
                            pick = stored
                        elif replace:
                            pick = below_numba(words[_u(j)], degree)
                        elif degree <= slots:
                            pick = rank if rank < degree else below_numba(words[_u(j)], degree)
                        else:
                            # Floyd: each draw admits one index more; a repeat becomes the newly admitted one.
                            newest = degree - slots + rank
                            pick = below_numba(words[_u(j)], newest + 1)
                            for i in range(j):
                                if tags[_u(i)] == 2 * pick + view:
                                    pick = newest
                                    break
                        # A view is 0 or 1, so a tag tells the picks of the two apart.
                        tags[_u(j)] = 2 * pick + view
                        if pick == stored:
                            drawn = node
                        elif view:
                            drawn = np.int64(history_neighbours[_u(history_row + pick)])
                        else:
                            drawn = np.int64(snapshot_neighbours[_u(snapshot_row + pick)])
                        nodes[_u(child + j)] = drawn
                        if not is_last:
                            prefetch(history_offsets, drawn * columns + step)
                            prefetch(snapshot_offsets, drawn * columns + step)
                            prefetch(history_start, drawn)
                            prefetch(snapshot_start, drawn)
            first = following
            width *= fanout
            base += width
