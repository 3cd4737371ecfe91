"""The Triton sampler against numba's; on the CPU through Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as run

from chronospike.errors import InputError
from chronospike.sampling import HybridSampler
from tests.sampling.reference import Edge, edge_lists, graph_of, renamed, settings
from tests.six_nodes import six_nodes

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@given(edge_lists(), settings)
@run(max_examples=12, deadline=None)
def test_triton_equals_numba_to_the_bit(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = graph_of(*case)
    roots = np.arange(graph.num_nodes)[::-1]
    ours = HybridSampler(graph, **options, device=DEVICE, backend="triton").sample(roots, epoch=1).nodes
    twin = HybridSampler(graph, **options, backend="numba").sample(roots, epoch=1).nodes
    assert ours.dtype == torch.int32
    assert ours.cpu().equal(twin)


@given(edge_lists(), settings)
@run(max_examples=8, deadline=None)
def test_triton_equals_numba_on_text_ids(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = renamed(graph_of(*case))
    ours = HybridSampler(graph, **options, device=DEVICE, backend="triton").sample(range(graph.num_nodes)).nodes
    assert ours.cpu().equal(HybridSampler(graph, **options, backend="numba").sample(range(graph.num_nodes)).nodes)


def test_triton_equals_numba_on_high_degrees_and_large_fanouts() -> None:
    rng = np.random.default_rng(0)
    hubs, others, step = rng.integers(0, 5, 4000), rng.integers(5, 1000, 4000), rng.integers(0, 3, 4000)
    graph = graph_of(list(zip(hubs.tolist(), others.tolist(), step.tolist(), strict=True)), 1000, 3)
    ours = HybridSampler(graph, (40, 3), device=DEVICE, backend="triton").sample(range(50)).nodes
    assert ours.cpu().equal(HybridSampler(graph, (40, 3)).sample(range(50)).nodes)


def test_no_roots_give_an_empty_tree() -> None:
    assert HybridSampler(six_nodes(), device=DEVICE, backend="triton").sample([]).nodes.shape == (4, 0)


def test_tensors_on_the_device_give_the_same_tree() -> None:
    sampler = HybridSampler(six_nodes(), (3, 2), device=DEVICE, backend="triton", seed=5)
    key = torch.tensor([sampler.epoch_key(3)], device=DEVICE)
    tree = sampler.sample_tensors(key, torch.tensor([4, 0, 2], device=DEVICE), (1, 3))
    assert tree.steps == (1, 3)
    assert tree.nodes.equal(sampler.sample([4, 0, 2], epoch=3, steps=[1, 3]).nodes)


def test_tensors_on_the_device_give_the_same_tree_of_text_ids() -> None:
    sampler = HybridSampler(renamed(six_nodes()), (3, 2), device=DEVICE, backend="triton")
    key = torch.tensor([sampler.epoch_key(0)], device=DEVICE)
    tree = sampler.sample_tensors(key, torch.tensor([4, 0, 2], device=DEVICE), (1, 3))
    assert tree.nodes.equal(sampler.sample([4, 0, 2], steps=[1, 3]).nodes)


def test_other_backends_do_not_sample_from_tensors() -> None:
    nothing = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(InputError, match="the numba backend does not sample from tensors"):
        HybridSampler(six_nodes(), backend="numba").sample_tensors(nothing, nothing, (0,))
