"""The Triton sampler against the plain reference; on the CPU through Triton's interpreter."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as run

from chronospike.data.csr import TimeSlicedCSR
from chronospike.errors import InputError
from chronospike.sampling.hybrid import HybridSampler
from tests.sampling.reference import GPU, Edge, edge_lists, graph_of, hubs, reference_tree, renamed, settings
from tests.six_nodes import six_nodes

pytestmark = pytest.mark.device

pytest.importorskip("triton")


@given(edge_lists(), settings)
@run(max_examples=12, deadline=None)
def test_triton_equals_the_plain_reference(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = graph_of(*case)
    roots = list(range(graph.num_nodes))[::-1]
    tree = HybridSampler(graph, **options, device=GPU, backend="triton").sample(roots, epoch=1)
    assert tree.nodes.dtype == torch.int32
    assert tree.nodes.tolist() == reference_tree(graph, roots, range(graph.num_steps), **options, epoch=1)


@given(edge_lists(), settings)
@run(max_examples=8, deadline=None)
def test_triton_equals_the_plain_reference_on_directed_graphs_with_text_ids(
    case: tuple[list[Edge], int, int], options: dict[str, Any]
) -> None:
    graph = renamed(graph_of(*case, directed=True))
    roots = list(range(graph.num_nodes))
    tree = HybridSampler(graph, **options, device=GPU, backend="triton").sample(roots)
    assert tree.nodes.tolist() == reference_tree(graph, roots, range(graph.num_steps), **options)


def test_triton_equals_the_plain_reference_on_high_degrees_and_large_fanouts() -> None:
    graph, roots = hubs(), list(range(50))
    tree = HybridSampler(graph, (40, 3), device=GPU, backend="triton").sample(roots)
    assert tree.nodes.tolist() == reference_tree(graph, roots, range(3), (40, 3))


def test_a_graph_mapped_read_only_raises_no_warning() -> None:
    graph = six_nodes()

    def frozen(view: TimeSlicedCSR) -> TimeSlicedCSR:
        arrays = [array.copy() for array in (view.indptr, view.step_offsets, view.neighbours)]
        for array in arrays:
            array.flags.writeable = False
        return TimeSlicedCSR(*arrays)

    held = replace(graph, history=frozen(graph.history), snapshot=frozen(graph.snapshot))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = HybridSampler(held, (3,), device=GPU, backend="triton").sample(range(6))
    assert tree.nodes.tolist() == reference_tree(graph, list(range(6)), range(4), (3,))


def test_tensors_on_the_device_give_the_same_tree() -> None:
    sampler = HybridSampler(six_nodes(), (3, 2), device=GPU, backend="triton", seed=5)
    key = torch.tensor([sampler.epoch_key(3)], device=GPU)
    tree = sampler.sample_tensors(key, torch.tensor([4, 0, 2], device=GPU), (1, 3))
    assert tree.steps == (1, 3)
    assert tree.nodes.equal(sampler.sample([4, 0, 2], epoch=3, steps=[1, 3]).nodes)


def test_tensors_on_the_device_give_the_same_tree_of_text_ids() -> None:
    sampler = HybridSampler(renamed(six_nodes()), (3, 2), device=GPU, backend="triton")
    key = torch.tensor([sampler.epoch_key(0)], device=GPU)
    tree = sampler.sample_tensors(key, torch.tensor([4, 0, 2], device=GPU), (1, 3))
    assert tree.nodes.equal(sampler.sample([4, 0, 2], steps=[1, 3]).nodes)


def test_other_backends_do_not_sample_from_tensors() -> None:
    nothing = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(InputError, match="the numba backend does not sample from tensors"):
        HybridSampler(six_nodes(), backend="numba").sample_tensors(nothing, nothing, (0,))
