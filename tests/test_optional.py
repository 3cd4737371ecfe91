from __future__ import annotations

import pytest
import torch

from chronospike import optional

pytestmark = pytest.mark.device


@pytest.mark.parametrize("found", [None, object()])
def test_a_package_is_there_if_it_can_be_found(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda name: found if name == "triton" else None)
    optional.has_triton.cache_clear()
    assert optional.has_triton() == (found is not None)
    optional.has_triton.cache_clear()


def test_triton_that_is_not_there_or_does_not_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from chronospike import triton_common

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    optional.triton_trouble.cache_clear()
    assert optional.triton_trouble(device) is None

    def refuse(_: torch.device) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(triton_common, "launch_smallest", refuse)
    optional.triton_trouble.cache_clear()
    with pytest.warns(UserWarning, match="Failed to find C compiler"):
        assert optional.triton_trouble(device) == "Triton does not work here: Failed to find C compiler"
    monkeypatch.setattr(optional, "has_triton", lambda: False)
    optional.triton_trouble.cache_clear()
    assert optional.triton_trouble(device) == "Triton is not installed"
    optional.triton_trouble.cache_clear()
