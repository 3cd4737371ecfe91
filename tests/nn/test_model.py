from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from chronospike.nn.model import Architecture, ChronoSpike, Record
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.tree import widths


def _trees(steps: int = 4, roots: int = 3, fanouts: tuple[int, ...] = (5, 2), width: int = 16) -> TreeFeatures:
    sizes = tuple(roots * size for size in widths(fanouts))
    return TreeFeatures(3 * torch.randn(steps, sum(sizes), width, generator=torch.Generator().manual_seed(7)), sizes)


@pytest.mark.parametrize(("classes", "count"), [(10, 105_738), (5, 105_413), (6, 105_478)])
def test_parameter_counts_are_the_papers(classes: int, count: int) -> None:
    assert ChronoSpike(Architecture(128, classes)).parameter_count() == count


def test_the_ledger_of_parameters() -> None:
    model = ChronoSpike(Architecture(128, 10))
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = ".".join(name.split(".")[:2])
        counts[part] = counts.get(part, 0) + parameter.numel()
    assert counts == {
        "aggregators.0": 2 * (128 * 128 + 128) + 256,
        "aggregators.1": 2 * (128 * 64 + 64) + 128,
        "neurons.0": 3 * 128,
        "neurons.1": 3 * 64,
        "temporal.positions": 12_800,
        "temporal.in_weight": 3 * 64 * 64,
        "temporal.in_bias": 192,
        "temporal.out": 4_160,
        "temporal.norm_attention": 128,
        "temporal.expand": 64 * 128 + 128,
        "temporal.contract": 128 * 64 + 64,
        "temporal.norm_feedforward": 128,
        "readout.0": 4_160,
        "readout.2": 4_160,
        "classifier.weight": 640,
        "classifier.bias": 10,
    }


def test_shapes_of_logits_and_embedding() -> None:
    logits, z = ChronoSpike(Architecture(16, 3))(_trees())
    assert logits.shape == (3, 3)
    assert z.shape == (3, 64)


def test_recording_changes_nothing_and_sees_everything() -> None:
    torch.manual_seed(0)
    model = ChronoSpike(Architecture(16, 3)).eval()
    record = Record()
    torch.testing.assert_close(model(_trees(), record=record)[0], model(_trees())[0])
    assert [tuple(s.shape) for s in record.spikes] == [(4, 18, 128), (4, 3, 64)]
    assert [tuple(a.shape) for a in record.neighbour_attention] == [(4, 3, 5, 4), (4, 3, 5, 4)]
    assert record.time_attention is not None
    assert record.time_attention.shape == (3, 4, 4, 4)
    assert set(record.spikes[0].unique().tolist()) == {0.0, 1.0}


def test_roots_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    model = ChronoSpike(Architecture(16, 3)).eval()
    trees, changed = _trees(), _trees()
    root, neighbours, theirs = changed.hops()
    root[:, 1] += 1
    neighbours[:, 5:10] += 1
    theirs[:, 10:20] += 1
    before, after = model(trees)[1], model(changed)[1]
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


ABLATIONS = {
    "attention to mean": {"aggregator": "mean"},
    "attention to sum": {"aggregator": "sum"},
    "fixed neurons": {"neuron": "fixed"},
    "ReLU": {"neuron": "relu"},
    "LSTM": {"temporal": "lstm"},
    "mean over steps": {"temporal": "mean"},
    "last step": {"temporal": "last"},
    "rotary": {"positions": "rotary"},
    "raw neurons": {"neuron_form": "raw"},
}


@pytest.mark.parametrize("change", ABLATIONS.values(), ids=ABLATIONS.keys())
def test_every_switch_trains_all_its_parameters(change: dict[str, str]) -> None:
    torch.manual_seed(0)
    model = ChronoSpike(replace(Architecture(16, 3), **change))  # type: ignore[arg-type]
    logits, _ = model(_trees())
    logits.square().sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert unused == []


def test_three_layers_need_three_fanouts() -> None:
    model = ChronoSpike(Architecture(16, 3, hidden=(32, 16, 8)))
    assert model(_trees(fanouts=(3, 2, 2)))[1].shape == (3, 8)
    with pytest.raises(ValueError, match="3 layers need 4 hops, not 3"):
        model(_trees())
