from __future__ import annotations

import pytest

from chronospike import optional


@pytest.mark.parametrize("found", [None, object()])
def test_a_package_is_there_if_it_can_be_found(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda name: found if name == "triton" else None)
    optional.has_triton.cache_clear()
    assert optional.has_triton() == (found is not None)
    optional.has_triton.cache_clear()
