"""The Triton neurons alone; `tests/nn/test_lif.py` holds them to the plain form."""

from __future__ import annotations

import pytest
import torch

from chronospike.nn.lif import LIFParameters, lif_sequence
from chronospike.nn.surrogate import Surrogate

pytest.importorskip("triton")
pytestmark = pytest.mark.device
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("adapts", [False, True])
@pytest.mark.parametrize("surrogate", ["rational", "sigmoid"])
@pytest.mark.parametrize("strict", [False, True])
def test_no_kind_of_neuron_is_refused(adapts: bool, surrogate: Surrogate, strict: bool) -> None:
    from chronospike.nn.kernels.lif import refusal

    device = torch.device(DEVICE)
    for training in (False, True):
        assert refusal(device, 24, "full", training, training, adapts, surrogate, strict) is None


def test_thresholds_are_kept_only_where_they_adapt() -> None:
    one = torch.ones(4, device=DEVICE, requires_grad=True)
    for decay, count in ((1.0, 1), (0.7, 2)):
        parameters = LIFParameters(one, one, one, threshold_decay=decay)
        spikes, _ = lif_sequence(one.expand(3, 2, 4), parameters, implementation="triton")
        assert spikes.grad_fn is not None
        kept = {value.data_ptr() for value in spikes.grad_fn.saved_tensors if value.shape == (3, 2, 4)}  # type: ignore[attr-defined]
        assert len(kept) == count


def test_half_precision_inputs_keep_single_precision_membranes() -> None:
    """u_t = u_{t-1} + (0.6 - u_{t-1}) / 3 with 0.6 as bfloat16 has it: 0.2005, 0.3342, 0.4233, not rounded again."""
    h = torch.full((3, 2, 4), 0.6, dtype=torch.bfloat16, device=DEVICE)
    one = torch.ones(4, device=DEVICE)
    _, membranes = lif_sequence(h, LIFParameters(3 * one, one, one), implementation="triton")
    given = 0.6015625
    expected = torch.tensor([given * (1 - (2 / 3) ** step) for step in (1, 2, 3)], device=DEVICE)
    assert membranes.dtype == torch.float32
    torch.testing.assert_close(membranes[:, 0, 0], expected, atol=1e-6, rtol=1e-6)
