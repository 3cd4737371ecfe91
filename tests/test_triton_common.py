from __future__ import annotations

import pytest
import torch

from chronospike import rng

pytest.importorskip("triton")
import triton
import triton.language as tl

from chronospike.triton_common import derive, on

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@triton.jit
def _words_kernel(key, words, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.arange(0, BLOCK)
    tl.store(words + index, derive(tl.load(key).to(tl.uint64), index).to(tl.int64))


@pytest.mark.parametrize("key", [0, 1, 2**63 + 12345, 2**64 - 1])
def test_words_are_those_of_the_reference(key: int) -> None:
    words = torch.empty(16, dtype=torch.int64, device=DEVICE)
    with on(DEVICE):
        _words_kernel[(1,)](torch.tensor([rng.signed(key)], device=DEVICE), words, BLOCK=16)
    assert words.tolist() == [rng.signed(rng.derive(key, index)) for index in range(16)]
