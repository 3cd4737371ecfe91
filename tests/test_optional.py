from __future__ import annotations

import pytest
import torch

from chronospike import optional


@pytest.mark.parametrize("found", [None, object()])
def test_a_package_is_there_if_it_can_be_found(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda name: found if name == "triton" else None)
    optional.has_triton.cache_clear()
    assert optional.has_triton() == (found is not None)
    optional.has_triton.cache_clear()


def test_triton_that_is_not_there_or_does_not_run_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from chronospike.nn.kernels import sums

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    optional.triton_works.cache_clear()
    assert optional.triton_works(device)
    optional.triton_works.cache_clear()

    def refuse(_: torch.Tensor) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(sums, "add_up", refuse)
    with pytest.warns(UserWarning, match="Failed to find C compiler"):
        assert not optional.triton_works(device)
    optional.triton_works.cache_clear()
    monkeypatch.setattr(optional, "has_triton", lambda: False)
    assert not optional.triton_works(device)
    optional.triton_works.cache_clear()
