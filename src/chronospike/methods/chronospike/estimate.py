"""Estimates before a run starts: its size, and its peak memory.

The tensors alive in a forward and backward pass are counted, not derived. Two, three and four roots go through the
real network with the real steps and fan-outs, and the bytes alive after each operator are noted. The operators come
in the same order whatever the number of roots B, and after each of them the bytes are a quadratic in B (tensors of
the trees are linear, the contrastive term's similarities quadratic), so three passes give the trace at any B.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from chronospike.data.graph import DynamicGraph
from chronospike.data.label_features import MOST_VALUES
from chronospike.memory import machine_bytes
from chronospike.methods.chronospike.inference import GPU_LANE, LANE
from chronospike.methods.chronospike.memory import known_bytes
from chronospike.methods.chronospike.network import new_model, objective
from chronospike.methods.chronospike.root_table import root_widths
from chronospike.methods.chronospike.settings import ChronoSpikeSettings
from chronospike.methods.chronospike.tree_inputs import RESIDENT_BYTES
from chronospike.nn.dispatch import PLAIN, KernelPlan, plan_kernels
from chronospike.nn.memory_model import kernel_bytes
from chronospike.nn.model import ChronoSpike, Record
from chronospike.nn.roots import RootInputs
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.batches import num_batches
from chronospike.sampling.tree import widths
from chronospike.training.label_tables import LABEL_FOLDS
from chronospike.training.memory import COPIES_OF_WEIGHTS
from chronospike.training.node_features import input_width, is_static
from chronospike.training.task import split_for

_PROBES = (2, 3, 4)
# The C library keeps freed blocks (see `keep_freed_memory`), and what it keeps does not fit the next request
# exactly: 1.20 to 1.33 times the live bytes over runs of three sizes.
_FRAGMENTATION = 1.25
# Compiled sampler, matrix library and report, which are not loaded yet when the estimate is made.
_LOADED_LATER = 100_000_000
# The process with torch, numba and the rest, where the system does not tell.
_USUAL_PROCESS = 600_000_000
# cuBLAS takes this much for itself on the GPUs that take the most.
_GPU_BASE = 32 * 1024**2
# Activity, per end of an event, and label features, per node, fold and class: values, their next round, three sums.
_EVENT_BYTES, _FOLD_BYTES = 100, 20
# Label propagation, once at the end, per stored edge.
_EVALUATION_BYTES = 80


def estimate(graph: DynamicGraph, settings: ChronoSpikeSettings, features: int) -> dict[str, int]:
    """Size and peak memory of a run of `settings` on `graph`, whose features are `features` wide.

    A graph without features is taken to get some, for every step, before training.

    Returns:
        `parameters`, `batches` an epoch, `steps` the network sees, `tree_nodes` sampled per batch and step,
        `peak_cpu_bytes` (resident memory of the process if it trains on the CPU), `peak_gpu_bytes` (allocated by torch
        if on a GPU), and what the CPU's is made of: `base_bytes`, `features_bytes` (standardised), `heap_bytes` and
        `mapped_bytes`. The mapped part, files of the graph and its features, gives way where memory is short.
        `activation_bytes` and `graph_bytes` are for comparison.
    """
    s = settings
    graph.require(steps=1 if s.static else 2, classes=2)
    train = len(split_for(graph, s).train)
    steps = 1 if s.static else graph.num_steps
    size = s.batch_nodes(train)
    batch = min(size, train)
    model = new_model(s, features, graph.num_classes, directed=graph.directed)
    parameters = model.parameter_count() * max(1, s.folds)
    known = known_bytes(graph, s)
    # Gradients are counted with the activations.
    weights = COPIES_OF_WEIGHTS * sum(4 * parameter.numel() for parameter in model.parameters())

    plan = plan_kernels(model.architecture, torch.device("cpu"), steps=steps, fanouts=s.fanouts, wanted=s.kernels)
    single = activation_bytes(model, s, plan, steps, batch)
    on_gpu = gpu_activation_bytes(model, s, steps, batch)
    itemsize = 4 if s.precision == "single" else 2
    one_step = is_static(graph) and features <= input_width(graph)
    block = graph.num_nodes * features
    values = block if one_step else graph.num_steps * block
    table = 4 * values if 4 * values <= RESIDENT_BYTES else 0
    # These follow one another in the same memory: standardising, label features, training, evaluating.
    steps_of_work = (4 * block, _tables_bytes(graph, s), int(_FRAGMENTATION * (single + weights)))
    heap = max(*steps_of_work, _evaluation_bytes(graph))
    base = process_bytes() + _LOADED_LATER
    # On the CPU the numbers of a node are there in parts, too.
    needed = base + table + known + 4 * graph.num_nodes * root_widths(s, graph.num_classes, graph.directed)[1] + heap
    mapped = min(_mapped_bytes(graph, 4 * values), max(0, machine_bytes() - needed))
    graph_bytes = graph.history.nbytes + graph.snapshot.nbytes
    return {
        "parameters": parameters,
        "batches": num_batches(train, size),
        "steps": steps,
        "tree_nodes": batch * sum(widths(s.fanouts)),
        "peak_cpu_bytes": needed + mapped,
        "peak_gpu_bytes": _GPU_BASE + values * itemsize + graph_bytes + known + weights + on_gpu,
        "base_bytes": base,
        "features_bytes": table,
        "activation_bytes": single,
        "heap_bytes": heap,
        "mapped_bytes": mapped,
        "graph_bytes": graph_bytes,
    }


def activation_bytes(
    model: ChronoSpike, settings: ChronoSpikeSettings, plan: KernelPlan, steps: int, batch: int, lane: int = LANE
) -> int:
    """Most bytes alive at once in tensors: inputs, activations and gradients of a batch, or of a lane at inference.

    The global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        learn = probe_traces(partial(_learn, model, settings, plan, steps))
        infer = probe_traces(partial(_infer, model, settings, plan, steps))
    return max(peak_at(batch, _PROBES, learn), peak_at(lane, _PROBES, infer))


def gpu_activation_bytes(model: ChronoSpike, settings: ChronoSpikeSettings, steps: int, batch: int) -> int:
    """The same on a GPU: with the kernels of the default network, or without any where a part of it has none."""
    s, a = settings, model.architecture
    has_kernels = (a.aggregator, a.temporal, a.positions) == ("attention", "transformer", "learned")
    if s.kernels == "plain" or not has_kernels or a.neuron == "relu":
        return activation_bytes(model, s, PLAIN, steps, batch, GPU_LANE)
    gradients = 4 * model.parameter_count()
    return max(
        kernel_bytes(a, steps, roots, s.fanouts, half=s.precision != "single", dense=s.label_inputs, training=training)
        + training * gradients
        for roots, training in ((batch, True), (GPU_LANE, False))
    )


def probe_traces(work: Callable[[int], object]) -> list[list[int]]:
    """The trace of `work` with each of the numbers of roots."""
    # Not of the first time: compiling kernels keeps tensors alive that are freed at once otherwise.
    work(_PROBES[0])
    return [live_trace(partial(work, roots)) for roots in _PROBES]


def live_trace(work: Callable[[], object]) -> list[int]:
    """Bytes in the tensors made by `work` and still alive, after each of its operators."""
    watch = _LiveBytes()
    with watch:
        work()
    return watch.trace


def peak_at(roots: int, probes: tuple[int, ...], traces: list[list[int]]) -> int:
    """The largest value at `roots` of the quadratics through the `traces [3, K]` of three probes."""
    powers = np.vander(np.array(probes, dtype=np.float64), 3)
    curves = np.linalg.solve(powers, np.array(traces, dtype=np.float64))
    return round(float((np.array([roots**2, roots, 1.0]) @ curves).max()))


def process_bytes() -> int:
    """Resident memory of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return _USUAL_PROCESS
    return pages * os.sysconf("SC_PAGE_SIZE")


class _LiveBytes(TorchDispatchMode):
    """Adds up the storages that operators make, until they are freed; inside the backward pass too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # If so, torch would load its compiler to turn it off, which takes seconds.
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace: list[int] = []
        self._live = 0
        self._watched: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._watch(tensor.untyped_storage())
        self.trace.append(self._live)
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._watched:
            size = storage.nbytes()
            self._watched[key] = weakref.ref(storage, lambda _: self._forget(key, size))
            self._live += size

    def _forget(self, key: int, size: int) -> None:
        del self._watched[key]
        self._live -= size


def _learn(model: ChronoSpike, s: ChronoSpikeSettings, plan: KernelPlan, steps: int, roots: int) -> None:
    """What the training loop does with a batch, up to the gradients."""
    model.train()
    # New gradients in every pass, as after the optimiser's step.
    model.zero_grad(set_to_none=True)
    logits, z = model(_rows(model, s, steps, roots), plan)
    objective(s).losses(logits, z, torch.zeros(roots, dtype=torch.long))[0].backward()


@torch.no_grad()
def _infer(model: ChronoSpike, s: ChronoSpikeSettings, plan: KernelPlan, steps: int, roots: int) -> None:
    """A lane with everything recorded, which is how firing rates are taken."""
    model.eval()
    model(_rows(model, s, steps, roots), plan, Record())


def _rows(model: ChronoSpike, s: ChronoSpikeSettings, steps: int, roots: int) -> TreeFeatures:
    sizes = tuple(roots * width for width in widths(s.fanouts))
    a = model.architecture
    counts = torch.zeros(roots, steps, a.met, dtype=torch.int16) if a.met else None
    known = RootInputs(counts, torch.zeros(roots, a.numbers) if a.numbers else None)
    return TreeFeatures(torch.zeros(steps, sum(sizes), a.inputs), sizes, roots=known)


def _tables_bytes(graph: DynamicGraph, settings: ChronoSpikeSettings) -> int:
    """What making activity or label features takes beside the results."""
    if settings.static:
        return 0
    ends = 2 * len(graph.events.time) if graph.events is not None else len(graph.snapshot.neighbours)
    cells = min(graph.num_nodes * LABEL_FOLDS * graph.num_classes, MOST_VALUES)
    return max(settings.activity * _EVENT_BYTES * ends, settings.label_features * _FOLD_BYTES * cells)


def _evaluation_bytes(graph: DynamicGraph) -> int:
    """Label propagation: an operator over all edges, and four tables of all nodes and classes."""
    cells = graph.num_nodes * (graph.num_steps + 4 * graph.num_classes)
    return _EVALUATION_BYTES * len(graph.snapshot.neighbours) + 8 * cells


def _mapped_bytes(graph: DynamicGraph, made_bytes: int) -> int:
    """Files that the run reads through a memory map; arrays in memory are part of the process already.

    `made_bytes` is the size of the features to be made if there are none.
    """
    views = (graph.history, graph.snapshot)
    arrays: list[NDArray[Any]] = [a for view in views for a in (view.indptr, view.step_offsets, view.neighbours)]
    arrays += [x for x in (graph.features, *graph.made_features) if x is not None]
    mapped = sum(array.nbytes for array in arrays if isinstance(array, np.memmap))
    return mapped + (0 if graph.has_features else made_bytes)
