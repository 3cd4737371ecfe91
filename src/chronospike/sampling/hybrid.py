"""The hybrid sampler: neighbourhoods mixed from a node's history and its current snapshot, at every step."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from chronospike import rng
from chronospike.data.graph import DynamicGraph
from chronospike.device import choose_device
from chronospike.errors import InputError, check_choice
from chronospike.optional import has_triton, triton_trouble
from chronospike.sampling.tree import NeighbourTree, widths

if TYPE_CHECKING:
    from chronospike.sampling.numba_backend import NumbaBackend
    from chronospike.sampling.triton_backend import TritonBackend

HISTORIES = ("strict", "inclusive")
MIXES = ("bernoulli", "split")
BACKENDS = ("numba", "triton")


@dataclass(frozen=True)
class SamplingSettings:
    """How neighbours are drawn: see `HybridSampler`. Checked, with what the backends derive from it."""

    fanouts: tuple[int, ...] = (5, 2)
    p: float = 0.5
    history: str = "strict"
    mix: str = "bernoulli"
    replace: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.fanouts or not all(_is_whole(s) and s >= 1 for s in self.fanouts):
            raise InputError(f"fanouts {list(self.fanouts)}: give one whole number, at least 1, for each hop")
        if not isinstance(self.p, Real) or not 0 <= self.p <= 1:
            raise InputError(f"p {self.p!r} is outside 0..1: it is the share of neighbours from the history")
        check_choice("history", self.history, HISTORIES)
        check_choice("mix", self.mix, MIXES)
        if not _is_whole(self.seed):
            raise InputError(f"seed {self.seed!r} is not a whole number")

    @property
    def lag(self) -> int:
        """The history at step t is the row prefix of steps before t + lag."""
        return 1 if self.history == "inclusive" else 0

    @property
    def threshold(self) -> int:
        """`p` as `rng.chance_numba` takes it."""
        return rng.threshold(float(self.p))

    @property
    def history_slots(self) -> tuple[int, ...]:
        """For each hop the number of slots that take the history, or -1 where each slot draws its view."""
        if self.mix == "bernoulli":
            return (-1,) * len(self.fanouts)
        # 10 · 0.3 is 2.9999999999999996 in floating point, and three slots are meant.
        return tuple(max(math.floor(s * self.p + 1e-9), 1) for s in self.fanouts)

    @property
    def tree_size(self) -> int:
        """Positions per root: 1 + S1 + S1·S2 + …"""
        return sum(widths(self.fanouts))

    def key(self, epoch: int, purpose: str = "sampler") -> int:
        """The stream of all draws of one epoch; below it come the root's id, the step and the slot."""
        return rng.stream(self.seed, purpose, epoch)


class HybridSampler:
    """Samples the neighbourhood tree of a batch of root nodes at all steps in one call.

    At step t each neighbour slot takes either the history (the neighbours known before t) or the snapshot (those
    active at t). A node is its own neighbour in both. Within a view the neighbours are drawn without replacement;
    a view with fewer neighbours than slots gives each once and then repeats at random.

    Each draw is a function of (seed, purpose, epoch, the root's id, step, slot) alone. The tree of a root is therefore
    the same in any batch, on any number of threads, on either backend and device, whatever other steps are asked for
    and whatever nodes and edges come later.

    Args:
        graph: where the neighbours come from.
        fanouts: neighbours per node in each hop.
        p: share of the history, 0..1.
        history: `"strict"` (edges before step t) or `"inclusive"` (and those at t).
        mix: `"bernoulli"` (each slot draws its view) or `"split"` (⌊S·p⌋ slots of the history, at least one).
        replace: draw with replacement.
        seed: random seed.
        device: of the returned trees.
        backend: `"numba"` samples on the CPU and copies the trees; `"triton"` samples on the GPU, which then holds the
            graph. By default Triton for a GPU where it works, else numba.
        threads: for numba; by default all CPUs of this process.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        fanouts: int | Iterable[int] = (5, 2),
        p: float = 0.5,
        history: str = "strict",
        mix: str = "bernoulli",
        replace: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        backend: str | None = None,
        threads: int | None = None,
    ) -> None:
        # `5` and `[5]` are one hop of five.
        hops = tuple(fanouts) if isinstance(fanouts, Iterable) else (fanouts,)
        self.settings = SamplingSettings(hops, p, history, mix, replace, seed)
        if backend is not None:
            check_choice("backend", backend, BACKENDS)
        if threads is not None and threads < 1:
            raise InputError(f"threads {threads} is below 1")
        self.graph = graph
        self.device = choose_device(str(device))
        self.backend = backend or default_backend(self.device)
        self._backend = _make_backend(self.backend, graph, self.device, threads)
        self._steps: dict[tuple[int, ...], torch.Tensor] = {}

    def sample(
        self,
        roots: ArrayLike | torch.Tensor,
        epoch: int = 0,
        steps: Iterable[int] | None = None,
        purpose: str = "sampler",
    ) -> NeighbourTree:
        """The tree of `roots [B]` at all steps, or at the given ones, in their order.

        `purpose` names the random stream: samples for different purposes are drawn independently.
        """
        root = _indices("roots", roots, self.graph.num_nodes)
        span = range(self.graph.num_steps) if steps is None else steps
        step = _indices("steps", span if isinstance(span, torch.Tensor) else list(span), self.graph.num_steps)
        nodes = self._backend.sample(self.settings, self.settings.key(epoch, purpose), root, step)
        return NeighbourTree(nodes.to(self.device), self.settings.fanouts, tuple(step.tolist()))

    def sample_tensors(self, key: torch.Tensor, roots: torch.Tensor, steps: tuple[int, ...]) -> NeighbourTree:
        """The tree of `roots [B]` for an epoch's `key [1]`, both int64 on the device and not checked.

        For a captured GPU step: once `steps` have been seen, nothing is copied to the device and nothing waits. Only
        the Triton backend can do it.
        """
        if not hasattr(self._backend, "sample_tensors"):
            raise InputError(f"the {self.backend} backend does not sample from tensors: use backend='triton'")
        if steps not in self._steps:
            self._steps[steps] = torch.tensor(steps, dtype=torch.int64, device=self.device)
        nodes = self._backend.sample_tensors(self.settings, key, roots, self._steps[steps])
        return NeighbourTree(nodes, self.settings.fanouts, steps)

    def epoch_key(self, epoch: int) -> int:
        """What `sample_tensors` takes for an epoch, as int64."""
        return rng.signed(self.settings.key(epoch))

    def __repr__(self) -> str:
        s = self.settings
        return (
            f"HybridSampler(fanouts={s.fanouts}, p={s.p}, history={s.history!r}, mix={s.mix!r}, replace={s.replace}, "
            f"seed={s.seed}, device={str(self.device)!r}, backend={self.backend!r})"
        )


def default_backend(device: torch.device) -> str:
    """Triton for a GPU where it works, else numba."""
    return "triton" if device.type == "cuda" and triton_trouble(device) is None else "numba"


def _make_backend(
    name: str, graph: DynamicGraph, device: torch.device, threads: int | None
) -> NumbaBackend | TritonBackend:
    # Both return the same bits for the same arguments. Each brings a compiler that takes a while to load.
    if name == "numba":
        from chronospike.sampling.numba_backend import NumbaBackend

        return NumbaBackend(graph, threads)
    if not has_triton():
        raise InputError("backend 'triton' needs Triton: pip install triton, or use backend 'numba'")
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise InputError("backend 'triton' samples on a GPU: give device='cuda', or use backend 'numba'")
    from chronospike.sampling.triton_backend import TritonBackend

    return TritonBackend(graph, device)


def _indices(what: str, values: Any, count: int) -> NDArray[np.int64]:
    """`[K]` a copy of `values` as int64, each in 0..count-1, or `InputError` naming the first that is not."""
    array = np.array(values.cpu().numpy() if isinstance(values, torch.Tensor) else values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{what} must be a list of whole numbers, got {array.dtype} of shape {list(array.shape)}")
    bad = np.flatnonzero((array < 0) | (array >= count))
    if len(bad):
        raise InputError(f"{what}[{bad[0]}] = {array[bad[0]]} is outside 0..{count - 1}")
    return array.astype(np.int64)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
