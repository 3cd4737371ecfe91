from __future__ import annotations

import numpy as np
import pytest

from chronospike.errors import InputError
from chronospike.rng import stream
from chronospike.sampling.batches import batches, num_batches

NODES = np.arange(100, 110)


def listed(size: int = 3, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    return [batch.tolist() for batch in batches(NODES, size, seed, epoch)]


def test_every_node_comes_once_and_the_last_batch_is_shorter() -> None:
    made = listed()
    assert [len(batch) for batch in made] == [3, 3, 3, 1]
    assert sorted(node for batch in made for node in batch) == NODES.tolist()


def test_the_order_is_philoxs_of_the_epochs_own_stream() -> None:
    expected = np.random.Generator(np.random.Philox(key=stream(7, "batches", 2))).permutation(NODES).tolist()
    assert listed(size=10, seed=7, epoch=2) == [expected]


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    orders = [listed(seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(map(tuple, order)) for order in orders}) == 4
    assert listed(seed=1, epoch=1) == orders[3]


def test_the_nodes_are_left_as_they_were() -> None:
    listed()
    assert NODES.tolist() == list(range(100, 110))


@pytest.mark.parametrize(("count", "expected"), [(10, 4), (9, 3), (0, 0)])
def test_num_batches_counts_what_batches_yields(count: int, expected: int) -> None:
    assert num_batches(count, 3) == expected
    assert len(list(batches(np.arange(count), 3, 0, 0))) == expected


def test_a_batch_size_below_1_is_refused() -> None:
    with pytest.raises(InputError, match="batch size 0 is below 1"):
        listed(size=0)
