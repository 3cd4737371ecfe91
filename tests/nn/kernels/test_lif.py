"""The Triton neurons alone; `tests/nn/test_lif.py` holds them to the plain form."""

from __future__ import annotations

import pytest
import torch

from chronospike.nn.lif import LIFParameters, lif_sequence

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_half_precision_inputs_keep_single_precision_membranes() -> None:
    """u_t = u_{t-1} + (0.6 - u_{t-1}) / 3 with 0.6 as bfloat16 has it: 0.2005, 0.3342, 0.4233, not rounded again."""
    h = torch.full((3, 2, 4), 0.6, dtype=torch.bfloat16, device=DEVICE)
    one = torch.ones(4, device=DEVICE)
    _, membranes = lif_sequence(h, LIFParameters(3 * one, one, one), implementation="triton")
    given = 0.6015625
    expected = torch.tensor([given * (1 - (2 / 3) ** step) for step in (1, 2, 3)], device=DEVICE)
    assert membranes.dtype == torch.float32
    torch.testing.assert_close(membranes[:, 0, 0], expected, atol=1e-6, rtol=1e-6)
