"""Choosing kernels: which implementation each operation uses on a device, and why.

plain    torch's own operations, in the order of the paper: what every other one is held to
folded   torch's own operations, of the Transformer's last query alone (`TemporalTransformer.forward`)
numba    compiled for the CPU, `nn/cpu/`
triton   compiled for the GPU, `nn/kernels/`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch

from chronospike.nn.surrogate import COMPILED
from chronospike.optional import triton_trouble

if TYPE_CHECKING:
    from chronospike.nn.lif import LIFParameters
    from chronospike.nn.losses import Objective
    from chronospike.nn.model import Architecture

Implementation = Literal["plain", "folded", "numba", "triton"]


@dataclass(frozen=True)
class Choice:
    """An implementation, and in a few words why that one."""

    implementation: Implementation
    why: str


@dataclass(frozen=True)
class KernelPlan:
    """What each operation is done with.

    Attributes:
        fetch: of rows of features from host memory.
        half: products take operands in half precision; sums, neurons and weights are single regardless.
    """

    attention: Choice
    neurons: Choice
    readout: Choice
    losses: Choice
    fetch: Choice
    sampler: Choice
    half: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


_ASKED = Choice("plain", "asked for")
PLAIN = KernelPlan(_ASKED, _ASKED, _ASKED, _ASKED, _ASKED, _ASKED)


def plan_kernels(
    architecture: Architecture,
    device: torch.device,
    *,
    steps: int,
    fanouts: tuple[int, ...],
    half: bool = False,
    wanted: Literal["auto", "plain"] = "auto",
    training: bool = True,
    objective: Objective | None = None,
    dtype: torch.dtype | None = None,
    dense: bool = False,
) -> KernelPlan:
    """The fastest implementations that work for a network of `architecture` on `device`; each kernel is tried once.

    Args:
        wanted: `"plain"` leaves all kernels aside; the sampler's all draw the same trees.
        training: without, no backward pass is tried.
        objective: what is trained for.
        dtype: of the features; by default what `half` implies.
        dense: the features come row by row, not by reference to a table.
    """
    a, on_gpu = architecture, device.type == "cuda"
    half = half and on_gpu
    dtype = dtype or (torch.float16 if half else torch.float32)
    trouble = triton_trouble(device) if on_gpu else "no GPU"
    sampler = Choice("numba", f"{trouble}: sampled on the CPU") if trouble else Choice("triton", "Triton works here")
    if wanted == "plain":
        return replace(PLAIN, sampler=sampler, half=half)
    refused = _without_kernel(a, on_gpu, dtype, objective if training else None)
    if on_gpu and trouble:
        refused = dict.fromkeys(refused, trouble)
    elif on_gpu:
        from chronospike.nn.kernels import attention, lif, losses, readout

        # The rows of the first layer are features, those above it spikes; the last layer has no dropout.
        kinds = ((dtype, dense), *[(torch.float32, True)] * len(a.hidden))
        layers = list(zip(kinds, pairwise((a.inputs, *a.hidden)), range(len(fanouts), 0, -1), strict=False))
        trials: dict[str, Callable[[], list[str | None]]] = {
            "attention": lambda: [
                attention.refusal(device, *kind, *width, a.heads, fanouts[:hops], half, training)
                for kind, width, hops in layers
            ],
            "neurons": lambda: [
                lif.refusal(device, width[1], a.reset_gradient, training and a.dropout > 0 and hops > 1, training)
                for _, width, hops in layers
            ],
            "readout": lambda: [
                readout.refusal(device, steps, a.hidden[-1], a.temporal_heads, a.feedforward, a.classes, half, training)
            ],
            "losses": lambda: [losses.refusal(objective, half, device, a.hidden[-1], a.classes) if objective else None],
        }
        refused |= {name: next(filter(None, trial()), None) for name, trial in trials.items() if refused[name] is None}

    def choose(operation: str) -> Choice:
        why = refused[operation]
        if why is None:
            return _kernel(on_gpu)
        can_fold = operation == "readout" and a.temporal == "transformer" and a.positions == "learned"
        return Choice("folded" if can_fold else "plain", why)

    return KernelPlan(**{operation: choose(operation) for operation in refused}, sampler=sampler, half=half)


def neuron_kernel(
    device: torch.device, channels: int, parameters: LIFParameters, dropout: bool, training: bool
) -> Choice:
    """What `lif_sequence` takes for a layer of `channels` neurons with these parameters; a kernel is tried once."""
    p, on_gpu = parameters, device.type == "cuda"
    if p.tau.dtype == torch.float64:
        return Choice("plain", "float64 has no kernel")
    if p.surrogate not in COMPILED:
        return Choice("plain", f"the {p.surrogate} surrogate has no kernel")
    trouble = triton_trouble(device) if on_gpu else None
    if on_gpu and trouble is None:
        from chronospike.nn.kernels import lif

        trouble = lif.refusal(device, channels, p.reset_gradient, dropout, training, p.adapts, p.surrogate, p.strict)
    return Choice("plain", trouble) if trouble else _kernel(on_gpu)


def _kernel(on_gpu: bool) -> Choice:
    return Choice("triton", "fits this GPU") if on_gpu else Choice("numba", "compiled for the CPU")


def _without_kernel(
    a: Architecture, on_gpu: bool, dtype: torch.dtype, objective: Objective | None
) -> dict[str, str | None]:
    """For each operation why there is no kernel of any size for it, or None."""
    no_dtype = f"{str(dtype).removeprefix('torch.')} has no kernel"
    general = None if dtype == torch.float32 or (dtype == torch.float16 and on_gpu) else no_dtype
    by_torch = None if on_gpu else "torch is fast enough on a CPU"
    aggregator = None if a.aggregator == "attention" else f"the {a.aggregator} aggregator has no kernel"
    temporal = None if a.temporal == "transformer" else f"the {a.temporal} encoder has no kernel"
    positions = None if a.positions == "learned" else "rotary positions have no kernel"
    return {
        "attention": general or aggregator,
        "neurons": general or ("ReLU has no kernel" if a.neuron == "relu" else None),
        "readout": temporal or positions or general or by_torch,
        "losses": general or by_torch if objective else "nothing is trained",
        "fetch": None if on_gpu else "features are in host memory",
    }


@contextmanager
def product_precision(device: torch.device, half: bool) -> Iterator[None]:
    """Torch's own float32 products meanwhile: TF32 on a GPU if `half`, else exact, whatever the caller has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if half and device.type == "cuda" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
