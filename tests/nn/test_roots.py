from __future__ import annotations

import math
import warnings

import pytest
import torch

from chronospike.nn.roots import SequenceReader, Standardise, sequences


def test_sequences_of_one_root_by_hand() -> None:
    """Two steps and two kinds: one of the first, then two of the first and three of the second."""
    found = sequences(torch.tensor([[[1, 0], [2, 3]]], dtype=torch.int16))
    met, so_far = [[1, 0, 1], [2, 3, 5]], [[1, 0, 1], [3, 3, 6]]
    expected = torch.tensor([[a + b] for a, b in zip(met, so_far, strict=True)], dtype=torch.float32).log1p()
    assert found.shape == (2, 1, 6)
    torch.testing.assert_close(found, expected)


def test_sums_of_counts_do_not_wrap_at_sixteen_bits() -> None:
    found = sequences(torch.full((1, 3, 2), 32_767, dtype=torch.int16))
    assert found[-1, 0, -1].item() == pytest.approx(math.log(1 + 6 * 32_767))


def test_a_root_is_read_whatever_else_is_in_the_batch() -> None:
    torch.manual_seed(0)
    reader, batch = SequenceReader(6, 4), torch.randn(5, 7, 6)
    alone = torch.cat([reader(batch[:, i : i + 1]) for i in range(7)])
    torch.testing.assert_close(reader(batch), alone)


def test_the_reader_gives_the_last_state_and_a_mean_of_all() -> None:
    torch.manual_seed(0)
    reader, batch = SequenceReader(6, 4), torch.randn(5, 3, 6)
    states = reader.recurrent(batch)[0]
    found = reader(batch)
    assert found.shape == (3, 8)
    assert torch.equal(found[:, :4], states[-1])
    with torch.no_grad():
        reader.attend.weight.zero_()
    torch.testing.assert_close(reader(batch)[:, 4:], states.mean(dim=0))


def test_numbers_are_standardised_by_those_of_the_fit() -> None:
    layer = Standardise(2)
    layer.fit(torch.tensor([[0.0, 5.0], [4.0, 5.0]]))
    # Mean 2 and deviation 2; the second column does not vary and is only centred.
    assert layer(torch.tensor([[6.0, 6.0]])).tolist() == [[2.0, 1.0]]


def test_numbers_far_outside_are_held_at_ten() -> None:
    layer = Standardise(1)
    layer.fit(torch.tensor([[0.0], [2.0]]))
    assert layer(torch.tensor([[1e6], [-1e6]])).tolist() == [[10.0], [-10.0]]


def test_what_was_fitted_is_part_of_the_state() -> None:
    one, other = Standardise(1), Standardise(1)
    one.fit(torch.tensor([[3.0], [7.0]]))
    other.load_state_dict(one.state_dict())
    assert other(torch.tensor([[9.0]])).tolist() == [[2.0]]


def test_a_fit_to_no_rows_changes_nothing() -> None:
    layer = Standardise(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.fit(torch.zeros(0, 1))
    assert layer(torch.tensor([[3.0]])).tolist() == [[3.0]]
