from __future__ import annotations

import pytest
import torch

from chronospike.config import Settings
from chronospike.errors import ChronoSpikeError, InputError
from chronospike.training.memory import memory_errors, require_feature_memory


def test_features_that_fit_no_machine_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronospike.memory.available_bytes", lambda: 10**8)
    with pytest.raises(InputError, match=r"making the features needs about .* Lower feature_dimension .now 1048576."):
        require_feature_memory(120, Settings(feature_dimension=2**20), torch.device("cpu"))


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="sizes differ"), memory_errors("Lower batch_size"):
        raise RuntimeError("sizes differ")


def test_a_gpu_out_of_memory_is_told_the_way_to_the_cpu() -> None:
    gone = pytest.raises(ChronoSpikeError, match="the GPU is out of memory. .* --device cpu")
    with gone, memory_errors("Lower batch_size"):
        raise torch.OutOfMemoryError("CUDA out of memory")
