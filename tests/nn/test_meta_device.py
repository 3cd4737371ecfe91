from __future__ import annotations

import pytest
import torch
from torch import nn

from chronospike.nn.meta_device import meta_device
from chronospike.nn.model import Architecture, ChronoSpike


@pytest.mark.parametrize("temporal", ["transformer", "lstm"])
def test_a_network_without_storage_has_the_shapes_of_the_real_one(temporal: str) -> None:
    a = Architecture(inputs=8, classes=3, hidden=(16, 8), heads=2, temporal_heads=2, temporal=temporal)  # type: ignore[arg-type]
    with meta_device():
        shapes = ChronoSpike(a).state_dict()
    real = ChronoSpike(a).state_dict()
    assert {name: value.shape for name, value in shapes.items()} == {name: value.shape for name, value in real.items()}
    assert all(value.is_meta for value in shapes.values())


def test_initialisation_is_only_left_out_in_the_block() -> None:
    weight = torch.zeros(4)
    with meta_device():
        assert nn.init.normal_(weight) is weight
        assert weight.normal_() is weight
    assert not weight.any()
    assert nn.init.normal_(weight).any()
