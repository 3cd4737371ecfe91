from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from chronospike.nn.model import Architecture, ChronoSpike, Record
from chronospike.nn.roots import RootInputs
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


READING = Architecture(16, 3, met=4, numbers=5, sequence_channels=8, head=16)


def _reading_trees() -> TreeFeatures:
    generator = torch.Generator().manual_seed(8)
    counts = torch.randint(6, (3, 4, 4), generator=generator)
    return replace(_trees(), roots=RootInputs(counts, torch.randn(3, 5, generator=generator)))


def test_the_ledger_of_what_is_read_of_a_root() -> None:
    """Of each step 2 · (4 + 1) numbers; the head reads z, the reader's 2 · 8 channels and 5 numbers."""
    more = ChronoSpike(READING).parameter_count() - ChronoSpike(Architecture(16, 3)).parameter_count()
    met = (10 * 64 + 64) + (64 * 64 + 64)
    reader = 3 * 8 * (10 + 8 + 2) + (8 + 1)
    head = (64 + 16 + 5) * 16 + 16 + 16 * 3 + 3
    assert more == met + reader + head


@pytest.mark.parametrize("part", ["counts", "numbers"])
def test_what_is_read_of_a_root_changes_its_own_logits_alone(part: str) -> None:
    torch.manual_seed(0)
    model, trees = ChronoSpike(READING).eval(), _reading_trees()
    values = getattr(trees.roots, part).clone()
    values[1] += 2
    changed = replace(trees, roots=replace(trees.roots, **{part: values}))
    before, after = model(trees)[0], model(changed)[0]
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


def test_labels_met_reach_the_embedding_and_numbers_do_not() -> None:
    torch.manual_seed(0)
    model, trees = ChronoSpike(READING).eval(), _reading_trees()
    z = model(trees)[1]
    assert trees.roots.counts is not None
    assert trees.roots.numbers is not None
    met = replace(trees, roots=replace(trees.roots, counts=trees.roots.counts + 1))
    numbers = replace(trees, roots=replace(trees.roots, numbers=trees.roots.numbers + 1))
    assert not torch.allclose(model(met)[1], z)
    assert torch.equal(model(numbers)[1], z)


def test_a_network_that_reads_roots_trains_all_its_parameters() -> None:
    torch.manual_seed(0)
    model = ChronoSpike(READING)
    logits, _ = model(_reading_trees())
    logits.square().sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert unused == []


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
