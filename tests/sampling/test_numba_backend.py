from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as run

from chronospike.data.csr import TimeSlicedCSR
from chronospike.sampling.hybrid import HybridSampler
from tests.sampling.reference import Edge, edge_lists, graph_of, hubs, reference_tree, renamed, settings
from tests.six_nodes import six_nodes


@given(edge_lists(), settings)
@run(max_examples=150, deadline=None)
def test_numba_equals_the_plain_reference(case: tuple[list[Edge], int, int], options: dict[str, Any]) -> None:
    graph = graph_of(*case)
    roots, steps = list(range(graph.num_nodes)), range(graph.num_steps)
    tree = HybridSampler(graph, **options, backend="numba").sample(roots, epoch=3)
    assert tree.nodes.tolist() == reference_tree(graph, roots, steps, **options, epoch=3)


@given(edge_lists(), settings)
@run(max_examples=30, deadline=None)
def test_numba_equals_the_plain_reference_on_directed_graphs(
    case: tuple[list[Edge], int, int], options: dict[str, Any]
) -> None:
    graph = graph_of(*case, directed=True)
    roots, steps = list(range(graph.num_nodes)), range(graph.num_steps)
    tree = HybridSampler(graph, **options, backend="numba").sample(roots)
    assert tree.nodes.tolist() == reference_tree(graph, roots, steps, **options)


def test_numba_equals_the_plain_reference_on_high_degrees_and_large_fanouts() -> None:
    graph, roots = hubs(), list(range(50))
    tree = HybridSampler(graph, (40, 3), backend="numba").sample(roots)
    assert tree.nodes.tolist() == reference_tree(graph, roots, range(3), (40, 3))


@given(edge_lists(), settings)
@run(max_examples=30, deadline=None)
def test_numba_equals_the_plain_reference_on_text_ids(
    case: tuple[list[Edge], int, int], options: dict[str, Any]
) -> None:
    graph = renamed(graph_of(*case))
    roots, steps = list(range(graph.num_nodes)), range(graph.num_steps)
    tree = HybridSampler(graph, **options, backend="numba").sample(roots)
    assert tree.nodes.tolist() == reference_tree(graph, roots, steps, **options)


@pytest.mark.parametrize("threads", [2, 3, 50])
def test_the_number_of_threads_changes_nothing(threads: int) -> None:
    roots = np.arange(6).repeat(5)
    alone = HybridSampler(six_nodes(), threads=1).sample(roots)
    assert HybridSampler(six_nodes(), threads=threads).sample(roots).nodes.equal(alone.nodes)


def test_the_callers_default_device_changes_nothing() -> None:
    sampler = HybridSampler(six_nodes(), (3, 2), backend="numba")
    expected = sampler.sample([4, 0, 2]).nodes.tolist()
    with torch.device("meta"):
        assert sampler.sample([4, 0, 2]).nodes.tolist() == expected


def test_memory_mapped_arrays_are_read_in_place(tmp_path: Path) -> None:
    graph = six_nodes()

    def mapped(view: TimeSlicedCSR, name: str) -> TimeSlicedCSR:
        arrays = {}
        for field in ("indptr", "step_offsets", "neighbours"):
            np.save(tmp_path / f"{name}_{field}.npy", getattr(view, field))
            arrays[field] = np.load(tmp_path / f"{name}_{field}.npy", mmap_mode="r")
        return TimeSlicedCSR(**arrays)

    on_disk = replace(graph, history=mapped(graph.history, "history"), snapshot=mapped(graph.snapshot, "snapshot"))
    sampler = HybridSampler(on_disk, backend="numba")
    assert sampler.sample(range(6)).nodes.equal(HybridSampler(graph).sample(range(6)).nodes)
    held = sampler._backend.history[2]  # type: ignore[union-attr]
    assert np.shares_memory(held, on_disk.history.neighbours)


def test_wider_integers_give_the_same_tree() -> None:
    graph = six_nodes()

    def widened(view: TimeSlicedCSR) -> TimeSlicedCSR:
        return TimeSlicedCSR(
            view.indptr.astype(np.int64), view.step_offsets.astype(np.int32), view.neighbours.astype(np.int64)
        )

    wide = replace(graph, history=widened(graph.history), snapshot=widened(graph.snapshot))
    assert HybridSampler(wide).sample(range(6)).nodes.equal(HybridSampler(graph).sample(range(6)).nodes)
