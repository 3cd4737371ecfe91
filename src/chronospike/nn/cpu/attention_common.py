"""What both ways of computing the neighbour attention on the CPU share: the tree, the sums, sharing the steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chronospike.compiled import njit
from chronospike.nn.aggregate import AttentionWeights
from chronospike.nn.tree_features import TreeFeatures
from chronospike.threads import default_threads, pool

# Sums may be taken in another order, so that they vectorise; what is not finite stays so.
REASSOCIATE = {"reassoc", "contract", "nsz"}
# Matrix products have this many rows, always: a product of another shape might round differently, and the result
# of a node must not depend on which other nodes are in the batch.
BLOCK = 256


@dataclass(frozen=True)
class Tree:
    """A `TreeFeatures` as the compiled loops read it: position i of step t is `table[bases[t] + nodes[t, i]]`.

    Attributes:
        table: `[rows, D]`.
        nodes: `[T, M]` int32.
        bases: `[T]` int64.
        spans: `[hops, 4]` int64, each a `Span`.
        targets: n, the positions that have neighbours.
    """

    table: NDArray[np.float32]
    nodes: NDArray[np.int32]
    bases: NDArray[np.int64]
    spans: NDArray[np.int64]
    targets: int

    @classmethod
    def of(cls, x: TreeFeatures) -> Tree:
        values = x.values.detach().contiguous().numpy()
        count = values.shape[1]
        if x.nodes is None:
            nodes = np.broadcast_to(np.arange(count, dtype=np.int32), values.shape[:2])
            bases = np.arange(len(values)) * count
        else:
            assert x.blocks is not None
            nodes, bases = x.nodes.contiguous().numpy(), x.blocks.numpy() * count
        spans = np.array(x.spans(), dtype=np.int64).reshape(-1, 4)
        return cls(values.reshape(-1, values.shape[-1]), nodes, bases, spans, x.targets)

    @property
    def steps(self) -> int:
        return len(self.bases)

    @property
    def width(self) -> int:
        return int(self.table.shape[1])


class Sums(NamedTuple):
    """What the backward pass sums over the targets v and their neighbours u, a part for each step.

    With g the gradient of a target's result, per head g_h, and e_h that of the logit of a neighbour:

    Attributes:
        own: `[T, C, D]`, Σ_v g xᵀ_v.
        near: `[T, C, D]`, Σ_v Σ_u g_h α_h xᵀ_u.
        grad_logit_own, grad_logit_near: `[T, H, D]`, Σ_v Σ_u e_h x_v and Σ_v Σ_u e_h x_u.
        bias: `[T, C]`, Σ_v g.
        grad_logit: `[T, H]`, Σ_v Σ_u e_h.
    """

    own: Tensor
    near: Tensor
    grad_logit_own: Tensor
    grad_logit_near: Tensor
    bias: Tensor
    grad_logit: Tensor

    @classmethod
    def zeros(cls, steps: int, weights: AttentionWeights, width: int) -> Sums:
        c, h = weights.channels, weights.heads
        shapes = ((c, width), (c, width), (h, width), (h, width), (c,), (h,))
        return cls(*(torch.zeros(steps, *shape) for shape in shapes))

    def gradients(self, w: AttentionWeights) -> tuple[Tensor, ...]:
        """Of the six parameters, in the order of `AttentionWeights`.

        A projection is reached directly and through the logits, a · (W x + b): the latter adds a_h eᵀx to ∂W_h and
        W_h Σ e x + b_h Σ e to ∂a_h.
        """
        own, near, grad_logit_own, grad_logit_near, bias, grad_logit = (part.sum(dim=0) for part in self)

        def one(weight: Tensor, offset: Tensor, attend: Tensor, direct: Tensor, by_logit: Tensor) -> tuple[Tensor, ...]:
            grad_weight = direct + torch.einsum("hc,hd->hcd", attend, by_logit).flatten(0, 1)
            grad_bias = bias + (attend * grad_logit.unsqueeze(1)).flatten()
            grad_attend = torch.einsum("hcd,hd->hc", weight.view(*attend.shape, -1), by_logit)
            return grad_weight, grad_bias, grad_attend + offset.view(attend.shape) * grad_logit.unsqueeze(1)

        grad_own = one(w.self_weight, w.self_bias, w.attend_self, own, grad_logit_own)
        grad_near = one(w.neighbour_weight, w.neighbour_bias, w.attend_neighbour, near, grad_logit_near)
        return (*grad_own[:2], *grad_near[:2], grad_own[2], grad_near[2])


def for_each(new_worker: Callable[[], Callable[[int], None]], count: int) -> None:
    """Put every number below `count` through a worker, the highest first, and wait for all.

    Each thread makes one worker, and with it its own scratch memory, and takes the next number whenever it is done
    with the last: later steps know more edges and take longer. Inside, torch uses one thread, because two ways of
    sharing the same CPUs would wait for each other. The calling thread only waits, so what follows the operators of
    that thread (autograd, a dispatch mode) does not see those inside.
    """
    waiting = iter(range(count - 1, -1, -1))

    def share() -> None:
        torch.set_num_threads(1)
        worker = new_worker()
        for number in waiting:
            worker(number)

    threads, before = min(count, default_threads()), torch.get_num_threads()
    if not threads:
        return
    try:
        for done in [pool(threads, os.getpid(), "chronospike-steps").submit(share) for _ in range(threads)]:
            done.result()
    finally:
        # The setting is each thread's own, but the last one made is also what a new thread begins with.
        torch.set_num_threads(before)


@njit
def gather(table: Any, base: int, nodes: Any, low: int, high: int, out: Any) -> None:
    """`out[i - low] = table[base + nodes[i]]` for i from `low` to `high`."""
    for i in range(low, high):
        row, copy = table[base + nodes[i]], out[i - low]
        for d in range(len(row)):
            copy[d] = row[d]


@njit(error_model="numpy")
def softmax(logits: Any, slope: Any) -> None:
    """In place, `[S, H]` over S after a LeakyReLU. Where a logit was not above zero, its weight gets a minus sign."""
    for h in range(logits.shape[1]):
        top = np.float32(-np.inf)
        for s in range(len(logits)):
            top = max(top, logits[s, h] if logits[s, h] > 0 else slope * logits[s, h])
        total = np.float32(0)
        for s in range(len(logits)):
            below = not logits[s, h] > 0
            weight = np.exp((slope * logits[s, h] if below else logits[s, h]) - top)
            total += weight
            logits[s, h] = -weight if below else weight
        for s in range(len(logits)):
            logits[s, h] /= total


@njit
def softmax_back(weights: Any, grad_logits: Any, slope: Any) -> None:
    """In place, from the gradients of the weights of `softmax` to those of the logits it was given, `[S, H]`."""
    for h in range(grad_logits.shape[1]):
        mean = np.float32(0)
        for s in range(len(grad_logits)):
            mean += abs(weights[s, h]) * grad_logits[s, h]
        for s in range(len(grad_logits)):
            below = weights[s, h] < 0
            grad_logits[s, h] = abs(weights[s, h]) * (grad_logits[s, h] - mean) * (slope if below else np.float32(1))
