from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import scale

from chronospike.data import preprocess
from chronospike.data.preprocess import apply, block_statistics
from chronospike.errors import GraphError


def standardise(features: NDArray[Any]) -> NDArray[Any]:
    """Every step of `features [T, N, d]`."""
    return np.stack([apply(*step) for step in zip(features, *block_statistics(features), strict=True)])


def test_each_step_is_standardised_by_one_mean_and_one_deviation() -> None:
    features = np.array([[[1.0, 3.0], [5.0, 7.0]], [[0.0, 0.0], [0.0, 4.0]]])
    mean, std = block_statistics(features)
    np.testing.assert_allclose(mean, [4.0, 1.0])
    np.testing.assert_allclose(std, [np.sqrt(5.0), np.sqrt(3.0)])
    expected = [[[-3, -1], [1, 3]] / np.sqrt(5), [[-1, -1], [-1, 3]] / np.sqrt(3)]
    np.testing.assert_allclose(standardise(features), expected, rtol=1e-6)


def test_agrees_with_scikit_learn_on_the_flattened_block(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small ranges, so that the merging of several of them is what is compared.
    monkeypatch.setattr(preprocess, "CHUNK_VALUES", 64)
    features = np.random.default_rng(0).normal(3.0, 2.0, (4, 101, 7))
    expected = scale(features.reshape(4, -1), axis=1).reshape(features.shape)
    np.testing.assert_allclose(standardise(features), expected, atol=1e-6)
    mean, std = block_statistics(features)
    np.testing.assert_allclose(mean, features.mean(axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, features.std(axis=(1, 2)), rtol=1e-12)


def test_static_features_count_as_one_block() -> None:
    features = np.random.default_rng(1).normal(size=(30, 4))
    mean, std = block_statistics(features)
    assert mean.tolist() == pytest.approx([features.mean()])
    assert std.tolist() == pytest.approx([features.std()])


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_constant_block_becomes_zeros(value: float) -> None:
    features = np.full((2, 50, 3), value)
    features[1] = np.arange(150).reshape(50, 3)
    result = standardise(features)
    np.testing.assert_array_equal(result[0], 0.0)
    assert np.isfinite(result).all()
    assert block_statistics(features)[1][0] == 0


def test_half_precision_does_not_overflow_in_the_sums() -> None:
    features = np.full((1, 1000, 200), 60_000, dtype=np.float16)
    features[0, ::2] = -60_000
    mean, std = block_statistics(features)
    assert mean[0] == 0
    assert std[0] == float(np.float16(60_000))


def test_large_mean_in_single_precision_keeps_the_spread() -> None:
    features = (1e6 + np.arange(4000, dtype=np.float32) % 2).reshape(1, 1000, 4)
    mean, std = block_statistics(features)
    assert mean[0] == pytest.approx(1e6 + 0.5, abs=1e-9)
    assert std[0] == pytest.approx(0.5, abs=1e-9)
    assert set(np.unique(standardise(features)).tolist()) == {-1.0, 1.0}


def test_part_of_a_step_from_a_memory_map_equals_that_part_of_the_whole(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(2).normal(2, 3, (3, 40, 5)).astype(np.float16))
    features = np.load(tmp_path / "x.npy", mmap_mode="r")
    mean, std = block_statistics(features)
    part = apply(features[1, [7, 3, 11]], mean[1], std[1])
    assert part.dtype == np.float32
    np.testing.assert_array_equal(part, standardise(features)[1, [7, 3, 11]])


def test_result_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "CHUNK_VALUES", 64)
    features = np.random.default_rng(4).normal(size=(1, 100, 9))
    several = block_statistics(features)
    monkeypatch.setattr(preprocess, "run_chunks", lambda work, total: work(0, total))
    np.testing.assert_array_equal(block_statistics(features), several)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(GraphError, match=r"shape \[3\]"):
        block_statistics(np.zeros(3))
