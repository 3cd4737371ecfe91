from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from chronospike import rng
from chronospike.rng_kernels import below_numba, chance_numba, derive_numba, hash_texts
from tests.plain_rng import below, chance

words = st.integers(0, 2**64 - 1)


def as_words(tensor: torch.Tensor) -> list[int]:
    return [word % 2**64 for word in tensor.tolist()]


# The published outputs of SplitMix64 started at 1234567 and at 0.
@pytest.mark.parametrize(
    ("key", "stream"),
    [
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]),
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
    ],
)
def test_a_stream_is_splitmix64(key: int, stream: list[int]) -> None:
    assert [rng.derive(key, i) for i in range(len(stream))] == stream


def test_a_purpose_is_salted_with_a_hash_of_its_name() -> None:
    # `printf sampler | b2sum -l 64`, then rank 0, then the two indices.
    salted = rng.derive(5, 0xECCC65B18DBD6570)
    assert rng.stream(5, "sampler") == rng.derive(salted, 0)
    assert rng.stream(5, "sampler", 3, 8) == rng.derive(rng.derive(rng.derive(salted, 0), 3), 8)
    assert rng.stream(5, "sampler", 3, rank=2) == rng.derive(rng.derive(salted, 2), 3)


PURPOSES = ("sampler", "inference", "dropout", "init", "label mask", "batches")


def test_no_two_seeds_purposes_ranks_and_epochs_share_a_word() -> None:
    every = product((-1, 0, 1), PURPOSES, range(3), range(4))
    keys = [rng.stream(seed, purpose, epoch, rank=rank) for seed, purpose, rank, epoch in every]
    drawn = [rng.derive(key, i) for key in keys for i in range(50)]
    assert len({*keys, *drawn}) == len(keys) + len(drawn) == 3 * 6 * 3 * 4 * 51


@given(words, words, st.integers(1, 2**31), st.floats(0, 1))
@settings(deadline=None)
def test_the_compiled_forms_agree_to_the_bit(key: int, index: int, bound: int, p: float) -> None:
    word, threshold = rng.derive(key, index), rng.threshold(p)
    # Numba hands a uint64 back as a Python integer, which it would take for an int64.
    compiled = np.uint64(derive_numba(np.uint64(key), np.uint64(index)))
    tensor = rng.derive_torch(torch.tensor([rng.signed(key)]), torch.tensor([rng.signed(index)]))
    assert [int(compiled)] == as_words(tensor) == [word]
    assert below_numba(compiled, bound) == below(word, bound)
    assert chance_numba(compiled, np.uint64(threshold)) == chance(word, threshold)


@pytest.mark.parametrize(
    ("word", "bound", "result"),
    [(0, 10, 0), (2**64 - 1, 10, 9), (2**63, 10, 5), (2**63 - 1, 10, 4), (2**64 - 1, 2**31, 2**31 - 1), (7, 1, 0)],
)
def test_below_scales_the_upper_half_of_the_word(word: int, bound: int, result: int) -> None:
    assert below_numba(np.uint64(word), bound) == result


def happens(word: int, p: float) -> bool:
    return bool(chance_numba(np.uint64(word), np.uint64(rng.threshold(p))))


@given(words)
@settings(deadline=None)
def test_chance_is_never_at_zero_and_always_at_one(word: int) -> None:
    assert not happens(word, 0.0)
    assert happens(word, 1.0)


def test_chance_compares_the_lower_half_of_the_word() -> None:
    assert happens(2**31 - 1, 0.5)
    assert not happens(2**31, 0.5)
    assert happens(7 << 32, 1e-9)


def grid() -> torch.Tensor:
    """Words of 12 epochs, 40 roots, 20 steps and 17 slots, as the sampler derives them."""
    epoch, root, step, slot = (torch.arange(n) for n in (12, 40, 20, 17))
    key = rng.derive_torch(torch.tensor(3), epoch)[:, None]
    key = rng.derive_torch(key, root)[:, :, None]
    key = rng.derive_torch(key, step)[..., None]
    return rng.derive_torch(key, slot)


@pytest.mark.parametrize("shift", [0, 32])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_neighbouring_epochs_roots_steps_and_slots_are_uncorrelated(axis: int, shift: int) -> None:
    half = ((grid() >> shift) & 0xFFFFFFFF).double()
    here, there = half.narrow(axis, 0, half.shape[axis] - 1), half.narrow(axis, 1, half.shape[axis] - 1)
    correlation = np.corrcoef(here.flatten(), there.flatten())[0, 1]
    assert abs(correlation) < 4 / here.numel() ** 0.5


def test_the_halves_of_a_word_are_uncorrelated() -> None:
    word = grid().flatten()
    correlation = np.corrcoef((word >> 32).double(), (word & 0xFFFFFFFF).double())[0, 1]
    assert abs(correlation) < 4 / len(word) ** 0.5


@pytest.mark.parametrize("bound", [2, 3, 7, 100])
def test_bounded_draws_are_uniform(bound: int) -> None:
    drawn = [below(word, bound) for word in as_words(grid().flatten())]
    assert stats.chisquare(np.bincount(drawn, minlength=bound)).pvalue > 1e-3


def test_successive_draws_fall_uniformly_into_pairs() -> None:
    # The upper three bits, which are what `below` makes of a bound of 8.
    drawn = (grid() >> 61) & 7
    pairs = (8 * drawn[..., :-1] + drawn[..., 1:]).flatten()[::2]
    assert stats.chisquare(torch.bincount(pairs, minlength=64)).pvalue > 1e-3


def test_each_input_bit_flips_about_half_of_the_output() -> None:
    for bit in range(64):
        flips = [
            (rng.derive(rng.derive(9, i), i) ^ rng.derive(rng.derive(9, i), i ^ (1 << bit))).bit_count()
            for i in range(200)
        ]
        # 200 words of 64 fair bits: a mean of 32 with a standard error of 0.28.
        assert abs(np.mean(flips) - 32) < 1.4, f"bit {bit}"


def test_the_hash_is_fnv_1a_mixed_once_more() -> None:
    # The published FNV-1a of "", "a" and "foobar".
    known = [0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8]
    text = np.frombuffer(b"afoobar", dtype=np.uint8)
    hashes = np.empty(3, dtype=np.int64)
    hash_texts(text, np.array([0, 0, 1, 7]), hashes)
    assert hashes.tolist() == [rng.signed(rng.derive(word, 0)) for word in known]


def test_numbers_of_numpy_name_the_same_stream() -> None:
    assert rng.stream(np.int64(3), "sampler", np.int64(5)) == rng.stream(3, "sampler", 5)  # type: ignore[arg-type]
