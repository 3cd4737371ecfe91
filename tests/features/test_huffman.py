from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from chronospike.errors import GraphError
from chronospike.features.huffman import HuffmanTree, huffman_tree


def path(tree: HuffmanTree, node: int) -> list[tuple[int, int]]:
    """The (inner node, bit) of each turn, from the leaf up."""
    place, found = int(tree.leaves[node]), []
    while tree.parents[place] >= 0:
        found.append((int(tree.parents[place]), int(tree.bits[place])))
        place = len(tree.parents) // 2 + 1 + int(tree.parents[place])
    return found


def code_lengths(tree: HuffmanTree) -> NDArray[np.int64]:
    """`[N]` turns from each leaf to the root."""
    return np.array([len(path(tree, node)) for node in range(len(tree.leaves))])


def least_length(counts: list[float]) -> float:
    """The counts times the code lengths of an optimal code, with a heap."""
    heap, total = list(counts), 0.0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return total


def test_code_lengths_give_the_known_answer() -> None:
    tree = huffman_tree(np.array([5.0, 2.0, 1.0, 1.0]))
    assert code_lengths(tree).tolist() == [1, 2, 3, 3]
    assert tree.depth == 3


@pytest.mark.parametrize("visits", [[5.0, 2.0, 1.0, 1.0], [0.3, 7.0, 0.0, 2.5, 2.5, 0.0, 9.0], [1.0] * 13])
def test_probabilities_of_the_leaves_add_up_to_one(visits: list[float]) -> None:
    tree, rng = huffman_tree(np.array(visits)), np.random.default_rng(2)
    theta, v = rng.normal(size=(len(tree.parents) // 2, 6)), rng.normal(size=6)
    total = 0.0
    for node in np.flatnonzero(visits):
        turns = path(tree, int(node))
        total += float(np.prod([1 / (1 + np.exp(-(1 - 2 * bit) * theta[row] @ v)) for row, bit in turns]))
    assert total == pytest.approx(1, abs=1e-12)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=60))
def test_a_code_is_as_short_as_can_be(counts: list[int]) -> None:
    tree = huffman_tree(np.array(counts, dtype=float))
    assert float(code_lengths(tree) @ counts) == least_length([float(count) for count in counts])
    assert sum(2.0 ** -int(length) for length in code_lengths(tree)) == 1
    assert tree.depth == code_lengths(tree).max()


def test_a_node_without_visits_has_no_leaf_and_changes_no_path() -> None:
    some, all_of_them = huffman_tree(np.array([0.0, 3.0, 0.0, 3.0, 9.0])), huffman_tree(np.array([3.0, 3.0, 9.0]))
    assert some.leaves[[0, 2]].tolist() == [-1, -1]
    assert [path(some, node) for node in (1, 3, 4)] == [path(all_of_them, node) for node in range(3)]


def test_two_nodes_share_one_turn() -> None:
    tree = huffman_tree(np.array([1.0, 1.0]))
    assert [path(tree, node) for node in range(2)] == [[(0, 0)], [(0, 1)]]


def test_a_single_node_has_no_tree() -> None:
    with pytest.raises(GraphError, match="needs two nodes"):
        huffman_tree(np.array([0.0, 4.0]))
