from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as run

from chronospike.data.csr import TimeSlicedCSR
from chronospike.sampling import HybridSampler
from tests.sampling.reference import Edge, edge_lists, graph_of, renamed, settings
from tests.six_nodes import six_nodes


@given(edge_lists(), settings)
@run(max_examples=150, deadline=None)
def test_torch_equals_numba_to_the_bit(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = graph_of(*case)
    roots = np.arange(graph.num_nodes)[::-1]
    trees = [HybridSampler(graph, **options, backend=kind).sample(roots, epoch=1) for kind in ("torch", "numba")]
    assert trees[0].nodes.equal(trees[1].nodes)
    assert trees[0].nodes.dtype == trees[1].nodes.dtype == torch.int32


@given(edge_lists())
@run(max_examples=30, deadline=None)
def test_torch_equals_numba_on_directed_graphs(case: tuple[list[Edge], int, int]) -> None:
    graph = graph_of(*case, directed=True)
    trees = [HybridSampler(graph, backend=kind).sample(range(graph.num_nodes)) for kind in ("torch", "numba")]
    assert trees[0].nodes.equal(trees[1].nodes)


@given(edge_lists(), settings)
@run(max_examples=30, deadline=None)
def test_torch_equals_numba_on_text_ids(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = renamed(graph_of(*case))
    ours = HybridSampler(graph, **options, backend="torch").sample(range(graph.num_nodes)).nodes
    assert ours.cpu().equal(HybridSampler(graph, **options, backend="numba").sample(range(graph.num_nodes)).nodes)


def test_torch_equals_numba_on_high_degrees_and_large_fanouts() -> None:
    rng = np.random.default_rng(0)
    hubs, others, step = rng.integers(0, 5, 4000), rng.integers(5, 1000, 4000), rng.integers(0, 3, 4000)
    graph = graph_of(list(zip(hubs.tolist(), others.tolist(), step.tolist(), strict=True)), 1000, 3)
    trees = [HybridSampler(graph, (40, 3), backend=kind).sample(range(50)) for kind in ("torch", "numba")]
    assert trees[0].nodes.equal(trees[1].nodes)


def test_read_only_arrays_raise_no_warning() -> None:
    graph = six_nodes()

    def frozen(view: TimeSlicedCSR) -> TimeSlicedCSR:
        arrays = [array.copy() for array in (view.indptr, view.step_offsets, view.neighbours)]
        for array in arrays:
            array.flags.writeable = False
        return TimeSlicedCSR(*arrays)

    held = replace(graph, history=frozen(graph.history), snapshot=frozen(graph.snapshot))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = HybridSampler(held, backend="torch").sample(range(6))
    assert tree.nodes.equal(HybridSampler(graph).sample(range(6)).nodes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@given(edge_lists(), settings)
@run(max_examples=30, deadline=None)
def test_the_gpu_returns_the_same_bits(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = graph_of(*case)
    on_gpu = HybridSampler(graph, **options, device="cuda", backend="torch")
    tree = on_gpu.sample(range(graph.num_nodes))
    assert tree.nodes.device.type == "cuda"
    assert tree.nodes.cpu().equal(HybridSampler(graph, **options).sample(range(graph.num_nodes)).nodes)
