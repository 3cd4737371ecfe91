"""Compile every Triton kernel for a GPU that need not be there; run by test_compile.py in a process of its own.

The launch code itself runs, on tensors of the CPU, with a driver that compiles and launches nothing: what is compiled
is what would be launched. Two graphs go through it, of other numbers of steps, classes, nodes and roots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from chronospike.data.synthetic import synthetic_graph
from chronospike.nn.dispatch import PLAIN, Choice, KernelPlan
from chronospike.nn.kernels.fetch import fetch
from chronospike.nn.lif import LIFParameters, lif_sequence
from chronospike.nn.losses import Objective
from chronospike.nn.model import Architecture, ChronoSpike
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.hybrid import SamplingSettings
from chronospike.sampling.tree import widths
from chronospike.sampling.triton_backend import TritonBackend

TRITON = Choice("triton", "compiled here")
PLAN = KernelPlan(TRITON, TRITON, TRITON, TRITON, TRITON, PLAIN.sampler, half=True)
FANOUTS = (5, 2)


class Target:
    """Stands for the driver of a GPU."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Compiler:
    """In place of `JITFunction.run`: compiles what has not been, and says so."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        original = JITFunction.run
        compiler = self

        def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
            del warmup
            caches = kernel.device_caches[0][0]
            before = len(caches)
            made = original(kernel, *arguments, grid=grid, warmup=True, **named)
            if len(caches) > before:
                # What every GPU since Ampere has.
                assert made.metadata.shared <= 99 * 1024, (kernel.__name__, made.metadata.shared)
                compiler.compiled.append(kernel.__name__)
            return made

        JITFunction.run = run


def train_a_batch(steps: int, classes: int, nodes: int, roots: int) -> None:
    """What a step of training launches, except for the sampler."""
    sizes = tuple(roots * width for width in widths(FANOUTS))
    table, blocks = torch.zeros(steps, nodes, 128, dtype=torch.float16), torch.arange(steps)
    tree = torch.zeros(steps, sum(sizes), dtype=torch.int32)
    fetch(table, table[:, :3].contiguous(), torch.zeros(nodes, dtype=torch.int32), tree, blocks)
    model = ChronoSpike(Architecture(128, classes))
    logits, z = model(TreeFeatures(table, sizes, tree, blocks), PLAN)
    targets, valid = torch.zeros(roots, dtype=torch.int64), torch.ones(roots, dtype=torch.bool)
    Objective().losses(logits, z, targets, torch.ones(classes), valid, PLAN)[0].backward()
    with torch.no_grad():
        model.eval()(TreeFeatures(table, sizes, tree, blocks), PLAN)


def adapt_thresholds(steps: int, rows: int) -> None:
    """The neurons of SpikeNet's first layer."""
    ones = torch.ones(128)
    rule = LIFParameters(
        ones,
        ones,
        ones,
        reset_gradient="full",
        threshold_decay=0.7,
        threshold_jump=0.2,
        surrogate="sigmoid",
        strict=True,
    )
    h = torch.zeros(steps, rows, 128, requires_grad=True)
    lif_sequence(h, rule, dropout=0.7, implementation="triton")[0].sum().backward()


def sample_a_batch(steps: int, nodes: int, roots: int) -> None:
    backend = TritonBackend(synthetic_graph(nodes=nodes, steps=steps, feature_dim=0), torch.device("cpu"))
    settings = SamplingSettings(FANOUTS)
    backend.sample(settings, settings.key(0), np.arange(roots), np.arange(steps))


def main() -> None:
    driver.set_active(Target())
    compiler = Compiler()
    train_a_batch(steps=13, classes=6, nodes=50, roots=160)
    sample_a_batch(steps=13, nodes=200, roots=20)
    print("first", *compiler.compiled)
    first = len(compiler.compiled)
    adapt_thresholds(steps=13, rows=48)
    print("adaptive", *compiler.compiled[first:])
    first = len(compiler.compiled)
    train_a_batch(steps=27, classes=10, nodes=64, roots=129)
    adapt_thresholds(steps=27, rows=80)
    print("again", *compiler.compiled[first:])


if __name__ == "__main__":
    main()
