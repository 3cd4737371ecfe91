"""The choice of kernels, and the network on its kernels against the same network without."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from chronospike.nn import dispatch
from chronospike.nn.dispatch import PLAIN, Choice, KernelPlan, neuron_kernel, plan_kernels, product_precision
from chronospike.nn.lif import LIFParameters
from chronospike.nn.losses import Objective
from chronospike.nn.model import Architecture, ChronoSpike, Record
from chronospike.nn.roots import RootInputs
from chronospike.nn.tree_features import TreeFeatures
from chronospike.sampling.tree import widths

pytestmark = pytest.mark.device
CPU, GPU = torch.device("cpu"), torch.device("cuda")
DEVICE = GPU if torch.cuda.is_available() else CPU
# Steps, roots, fan-outs, inputs, hidden.
SHAPES: list[Any] = [
    (1, 1, (1,), 4, (8,)),
    (5, 3, (3, 2), 6, (12, 8)),
    (4, 9, (5, 2), 16, (32, 16)),
    (3, 2, (2, 2, 2), 5, (8, 8, 4)),
    (27, 40, (5, 2), 24, (32, 16)),
]


def plan(device: torch.device, **values: Any) -> KernelPlan:
    network = replace(Architecture(16, 3), **values.pop("network", {}))
    return plan_kernels(network, device, **{"steps": 27, "fanouts": (5, 2), "objective": Objective(), **values})


def implementations(found: KernelPlan) -> list[str]:
    return [choice["implementation"] for name, choice in found.as_dict().items() if name != "half"]


def test_on_the_cpu_single_precision_is_compiled() -> None:
    found = plan(CPU, half=True)
    assert implementations(found) == ["numba", "numba", "folded", "plain", "plain", "numba"]
    assert not found.half


def test_double_precision_has_no_kernel() -> None:
    found = plan(CPU, dtype=torch.float64)
    assert implementations(found)[:2] == ["plain", "plain"]
    assert found.attention.why == found.neurons.why == "float64 has no kernel"


def test_plain_is_plain_everywhere_but_in_the_sampler_whose_trees_are_the_same() -> None:
    found = plan(CPU, wanted="plain")
    assert replace(found, sampler=PLAIN.sampler) == PLAIN
    assert found.sampler.implementation == "numba"


@pytest.mark.parametrize(
    ("network", "operation", "implementation", "why"),
    [
        ({"aggregator": "mean"}, "attention", "plain", "the mean aggregator has no kernel"),
        ({"neuron": "relu"}, "neurons", "plain", "ReLU has no kernel"),
        ({"temporal": "lstm"}, "readout", "plain", "the lstm encoder has no kernel"),
        ({"positions": "rotary"}, "readout", "plain", "rotary positions have no kernel"),
    ],
)
def test_what_has_no_kernel_is_plain_and_says_why(
    network: dict[str, str], operation: str, implementation: str, why: str
) -> None:
    chosen = getattr(plan(CPU, network=network), operation)
    assert (chosen.implementation, chosen.why) == (implementation, why)


def test_without_triton_a_gpu_computes_with_torch_and_samples_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "triton_trouble", lambda device: "Triton is not installed")
    found = plan(GPU, half=True)
    assert implementations(found) == ["plain", "plain", "folded", "plain", "plain", "numba"]
    assert found.half
    assert "Triton is not installed" in found.attention.why
    assert "Triton is not installed" in found.sampler.why


def fake_gpu(monkeypatch: pytest.MonkeyPatch, **refusals: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Triton as if it worked: kernels refuse what is named and are not tried. Returns what they are asked."""
    pytest.importorskip("triton")
    from chronospike.nn.kernels import attention, lif, losses, readout

    asked: list[tuple[str, tuple[Any, ...]]] = []
    monkeypatch.setattr(dispatch, "triton_trouble", lambda device: None)
    for module in (attention, lif, losses, readout):
        name = module.__name__.split(".")[-1]

        def answer(*arguments: Any, name: str = name) -> str | None:
            asked.append((name, arguments))
            return refusals.get(name)

        monkeypatch.setattr(module, "refusal", answer)
    return asked


def test_a_gpu_takes_triton_for_all_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_gpu(monkeypatch)
    assert implementations(plan(GPU, half=True)) == ["triton"] * 6
    layers = [arguments for name, arguments in asked if name == "attention"]
    half, single = torch.float16, torch.float32
    assert layers == [
        (GPU, half, False, 16, 128, 4, (5, 2), True, True),
        (GPU, single, True, 128, 64, 4, (5,), True, True),
    ]
    # Dropout is for all layers but the last.
    neurons = [arguments for name, arguments in asked if name == "lif"]
    assert neurons == [(GPU, 128, "detach", True, True), (GPU, 64, "detach", False, True)]


def test_a_kernel_that_does_not_fit_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu(monkeypatch, readout="does not fit this GPU's registers")
    found = plan(GPU)
    assert implementations(found) == ["triton", "triton", "folded", "triton", "triton", "triton"]
    assert found.readout.why == "does not fit this GPU's registers"


def test_for_inference_no_backward_pass_and_no_loss_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_gpu(monkeypatch)
    found = plan(GPU, training=False)
    assert found.losses.implementation == "plain"
    assert {name for name, _ in asked} == {"attention", "lif", "readout"}
    assert not any(arguments[-1] for _, arguments in asked)


def neurons(dtype: torch.dtype = torch.float32, **rule: Any) -> LIFParameters:
    one = torch.ones(8, dtype=dtype)
    return LIFParameters(one, one, one, **rule)


@pytest.mark.parametrize("rule", [{}, {"threshold_decay": 0.7, "surrogate": "sigmoid", "strict": True}])
def test_neurons_on_the_cpu_are_compiled(rule: dict[str, Any]) -> None:
    assert neuron_kernel(CPU, 8, neurons(**rule), True, True) == Choice("numba", "compiled for the CPU")


@pytest.mark.parametrize("device", [CPU, GPU])
def test_neurons_without_a_kernel_are_plain_and_say_why(device: torch.device) -> None:
    for surrogate in ("triangle", "arctan", "superspike"):
        found = neuron_kernel(device, 8, neurons(surrogate=surrogate), False, True)
        assert found == Choice("plain", f"the {surrogate} surrogate has no kernel")
    assert neuron_kernel(device, 8, neurons(torch.float64), False, True) == Choice("plain", "float64 has no kernel")


def test_neurons_on_a_gpu_take_triton_if_it_works_for_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_gpu(monkeypatch)
    adaptive = neurons(threshold_decay=0.7, threshold_jump=0.2, surrogate="sigmoid", strict=True)
    assert neuron_kernel(GPU, 8, adaptive, True, False).implementation == "triton"
    assert asked == [("lif", (GPU, 8, "detach", True, False, True, "sigmoid", True))]
    fake_gpu(monkeypatch, lif="no room")
    assert neuron_kernel(GPU, 8, adaptive, True, True) == Choice("plain", "no room")
    monkeypatch.setattr(dispatch, "triton_trouble", lambda device: "Triton is not installed")
    assert neuron_kernel(GPU, 8, adaptive, True, True) == Choice("plain", "Triton is not installed")


def test_a_plan_is_ready_for_json() -> None:
    found = json.loads(json.dumps(plan(CPU).as_dict()))
    assert found["attention"] == {"implementation": "numba", "why": "compiled for the CPU"}
    assert found["half"] is False


def _rows(steps: int, roots: int, fanouts: tuple[int, ...], inputs: int) -> TreeFeatures:
    sizes = tuple(roots * width for width in widths(fanouts))
    table = 2 * torch.randn(steps, 50, inputs)
    nodes = torch.randint(50, (steps, sum(sizes)), dtype=torch.int32)
    return TreeFeatures(table.to(DEVICE), sizes, nodes.to(DEVICE), torch.arange(steps, device=DEVICE))


# What is read of a root beside its trees: labels met at each step, and numbers.
READS: dict[str, Any] = {"met": 4, "numbers": 6}


def _with_roots(rows: TreeFeatures, met: int = 0, numbers: int = 0) -> TreeFeatures:
    if not met:
        return rows
    generator = torch.Generator().manual_seed(3)
    counts = torch.randint(5, (rows.sizes[0], rows.steps, met), dtype=torch.int16, generator=generator)
    values = torch.randn(rows.sizes[0], numbers, generator=generator)
    return replace(rows, roots=RootInputs(counts.to(DEVICE), values.to(DEVICE)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("reads", [{}, READS])
def test_network_on_its_kernels_equals_the_plain_one(shape: Any, seed: int, reads: dict[str, Any]) -> None:
    steps, roots, fanouts, inputs, hidden = shape
    torch.manual_seed(seed)
    rows = _with_roots(_rows(steps, roots, fanouts, inputs), **reads)
    network = Architecture(
        inputs, 3, hidden=hidden, dropout=0.0, temporal_dropout=0.0, head_dropout=0.0, sequence_channels=8, **reads
    )
    model = ChronoSpike(network).to(DEVICE)
    weights = torch.randn(roots, 3, device=DEVICE)
    fast = plan_kernels(network, DEVICE, steps=steps, fanouts=fanouts)
    assert fast.readout.implementation == ("triton" if DEVICE == GPU else "folded")
    found, spikes = [], []
    for way in (fast, PLAIN):
        # Recording takes the whole encoder, so the rest is computed without.
        record = Record()
        model(rows, way, record)
        logits, z = model(rows, way)
        gradients = torch.autograd.grad((weights * logits).sum(), list(model.parameters()))
        found.append([logits, z, *gradients])
        spikes.append([layer.detach() for layer in record.spikes])
    flips = sum(int((a != b).sum()) for a, b in zip(*spikes, strict=True))
    count = sum(layer.numel() for layer in spikes[0])
    assert 0 < sum(float(layer.sum()) for layer in spikes[0]) < count
    # A membrane within rounding of its threshold may fall on either side: rarer than one in ten thousand.
    assert flips <= 1e-4 * count
    if flips == 0:
        for one, other in zip(*found, strict=True):
            size = max(1.0, other.abs().max().item())
            torch.testing.assert_close(one / size, other / size, atol=5e-5, rtol=1e-3)


def test_what_is_read_of_roots_passes_the_readouts_kernel_in_values_and_gradients() -> None:
    """On the CPU through Triton's interpreter."""
    pytest.importorskip("triton")
    torch.manual_seed(0)
    rows = _with_roots(_rows(3, 4, (3, 2), 6), **READS)
    network = Architecture(
        6, 3, hidden=(12, 8), dropout=0.0, temporal_dropout=0.0, head_dropout=0.0, sequence_channels=8, **READS
    )
    model, weights = ChronoSpike(network).to(DEVICE), torch.randn(4, 3, device=DEVICE)
    found = []
    for way in (replace(PLAIN, readout=Choice("triton", "asked for")), PLAIN):
        logits, z = model(rows, way)
        gradients = torch.autograd.grad((weights * logits).sum() + z.square().sum(), list(model.parameters()))
        found.append([logits, z, *gradients])
    for one, other in zip(*found, strict=True):
        size = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one / size, other / size, atol=5e-5, rtol=1e-3)


def test_without_a_plan_the_network_takes_what_fits_its_inputs() -> None:
    torch.manual_seed(0)
    network = Architecture(4, 3, hidden=(8,), dropout=0.0, temporal_dropout=0.0)
    model, rows = ChronoSpike(network).to(DEVICE), _rows(2, 3, (2,), 4)
    chosen = plan_kernels(network, DEVICE, steps=2, fanouts=(2,))
    assert torch.equal(model(rows)[0], model(rows, chosen)[0])
    double = TreeFeatures(rows.values.double(), rows.sizes, rows.nodes, rows.blocks)
    assert model.double()(double)[0].dtype == torch.float64


@pytest.mark.parametrize("callers", ["highest", "high", "medium"])
def test_products_have_the_precision_asked_for_and_the_callers_is_put_back(callers: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(callers)
    try:
        for device, half, expected in ((CPU, False, "highest"), (CPU, True, "highest"), (GPU, True, "high")):
            with product_precision(device, half):
                assert torch.get_float32_matmul_precision() == expected
            assert torch.get_float32_matmul_precision() == callers
    finally:
        torch.set_float32_matmul_precision(before)
