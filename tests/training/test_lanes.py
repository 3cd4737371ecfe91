from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chronospike.training.lanes import aligned, aligned_width, evaluating, in_lanes
from chronospike.training.task import Nodes


@pytest.mark.parametrize(("width", "wanted"), [(1, 8), (8, 8), (9, 16), (128, 128)])
def test_rows_are_filled_up_with_zeros_to_32_bytes(width: int, wanted: int) -> None:
    rows = torch.randn(3, 5, width)
    found = aligned(rows)
    assert found.shape == (3, 5, wanted)
    assert aligned_width(width) == wanted
    assert torch.equal(found[..., :width], rows)
    assert not found[..., width:].any()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 11])
def test_every_lane_has_the_same_size_and_every_node_its_own_answer(count: int) -> None:
    sizes, told = [], []

    def answer(some: Nodes) -> tuple[Tensor, Tensor]:
        sizes.append(len(some))
        rows = torch.from_numpy(some).double()[:, None]
        return rows.expand(-1, 2), 10 * rows.expand(-1, 3)

    nodes = np.random.default_rng(0).permutation(20)[:count]
    first, second = in_lanes(answer, nodes, 4, (2, 3), lambda done, total: told.append((done, total)))
    assert first.shape == (count, 2)
    assert second.shape == (count, 3)
    assert first[:, 0].tolist() == nodes.tolist()
    assert second[:, 2].tolist() == (10 * nodes).tolist()
    assert sizes == [4] * -(-count // 4)
    assert told == [(min(count, done), count) for done in range(4, count + 4, 4)]


@pytest.mark.parametrize("mode", [True, False])
def test_a_module_is_left_in_the_mode_it_was_in_even_after_an_error(mode: bool) -> None:
    module = nn.Dropout().train(mode)
    with pytest.raises(ValueError, match="stop"), evaluating(module):
        assert not module.training
        raise ValueError("stop")
    assert module.training is mode
