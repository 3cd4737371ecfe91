from __future__ import annotations

import torch

from chronospike.sampling.tree import NeighbourTree, widths


def numbered(batch: int, fanouts: tuple[int, ...], steps: int) -> NeighbourTree:
    size = batch * sum(widths(fanouts))
    return NeighbourTree(torch.arange(steps * size).view(steps, size), fanouts, tuple(range(steps)))


def test_widths_multiply_along_the_hops() -> None:
    assert widths((5, 2, 3)) == (1, 5, 10, 30)


def test_hops_lie_one_after_the_other() -> None:
    tree = numbered(batch=2, fanouts=(3, 2), steps=2)
    assert tree.batch_size == 2
    assert [tree.hop(h)[0].tolist() for h in range(3)] == [[0, 1], list(range(2, 8)), list(range(8, 20))]
    assert tree.hop(1)[1].tolist() == list(range(22, 28))


def test_neighbours_of_a_position_are_consecutive_in_the_next_hop() -> None:
    tree = numbered(batch=2, fanouts=(3, 2), steps=2)
    assert tree.neighbours(0).shape == (2, 2, 3)
    assert tree.neighbours(0)[0].tolist() == [[2, 3, 4], [5, 6, 7]]
    assert tree.neighbours(1)[0, 4].tolist() == [16, 17]


def test_hops_are_views_of_the_nodes() -> None:
    tree = numbered(batch=2, fanouts=(3,), steps=1)
    tree.hop(1).zero_()
    assert tree.nodes.tolist() == [[0, 1, 0, 0, 0, 0, 0, 0]]
