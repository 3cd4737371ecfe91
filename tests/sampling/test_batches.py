from __future__ import annotations

import numpy as np
import pytest

from chronospike.errors import InputError
from chronospike.sampling.batches import batches, num_batches

NODES = np.arange(100, 110)


def listed(**options: int) -> list[list[int]]:
    return [batch.tolist() for batch in batches(NODES, **({"size": 3, "seed": 0, "epoch": 0} | options))]  # type: ignore[arg-type]


def test_every_node_comes_once_and_the_last_batch_is_shorter() -> None:
    made = listed()
    assert [len(batch) for batch in made] == [3, 3, 3, 1]
    assert sorted(node for batch in made for node in batch) == NODES.tolist()


def test_drop_last_leaves_only_full_batches() -> None:
    assert [len(batch) for batch in listed(drop_last=True)] == [3, 3, 3]
    assert [len(batch) for batch in listed(size=5, drop_last=True)] == [5, 5]


def test_without_shuffling_the_order_is_that_of_the_nodes() -> None:
    assert listed(shuffle=False) == [[100, 101, 102], [103, 104, 105], [106, 107, 108], [109]]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    assert listed() == listed()
    assert listed(seed=1) != listed() != listed(epoch=1)
    assert listed(seed=1, epoch=0) != listed(seed=0, epoch=1)


def test_a_resumed_epoch_goes_on_where_it_stopped() -> None:
    assert listed(start=2) == listed()[2:]
    assert listed(start=4) == []


def test_the_nodes_are_left_as_they_were() -> None:
    listed()
    assert NODES.tolist() == list(range(100, 110))


@pytest.mark.parametrize(
    ("count", "drop_last", "expected"), [(10, False, 4), (10, True, 3), (9, False, 3), (0, False, 0)]
)
def test_num_batches_counts_what_batches_yields(count: int, drop_last: bool, expected: int) -> None:
    assert num_batches(count, 3, drop_last) == expected
    assert len(list(batches(np.arange(count), 3, 0, 0, drop_last=drop_last))) == expected


@pytest.mark.parametrize("wrong", [{"size": 0}, {"start": -1}])
def test_sizes_and_starts_below_their_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="is below"):
        listed(**wrong)
