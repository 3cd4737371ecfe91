from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chronospike.data.ids import NodeIds, as_id_array
from chronospike.errors import InputError


def test_plain_integers_are_held_as_integers() -> None:
    ids = NodeIds.of(["10", "-7", "0"])
    assert not ids.is_text
    assert list(ids) == [10, -7, 0]


@pytest.mark.parametrize("odd", ["007", "+5", "1.0", "-0", "1e3", " 4", "99999999999999999999", "x", "५"])
def test_anything_but_plain_integers_stays_text(odd: str) -> None:
    ids = NodeIds.of([odd, "5"])
    assert ids.is_text
    assert list(ids) == [odd, "5"]


def test_lookup_finds_numbers_given_as_text_and_the_reverse() -> None:
    assert NodeIds.of([10, 5]).lookup(["5", "10", "05", "x"]).tolist() == [1, 0, -1, -1]
    assert NodeIds.of(["a", "5"]).lookup([5, 6]).tolist() == [1, -1]


def test_float_ids_without_a_fraction_are_integers() -> None:
    assert as_id_array(pa.array([1.0, 2.0])).to_pylist() == [1, 2]
    assert as_id_array(pa.array([1.5, 2.0])).type == pa.large_string()


def test_floats_of_half_precision_are_read() -> None:
    assert as_id_array(np.array([1, 2], dtype=np.float16)).to_pylist() == [1, 2]


@pytest.mark.parametrize(("dtype", "limit"), [(np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)])
def test_floats_that_may_have_lost_digits_are_refused(dtype: type[np.floating], limit: int) -> None:
    assert as_id_array(np.array([limit], dtype=dtype)).to_pylist() == [limit]
    with pytest.raises(InputError, match=f"beyond {limit:,}, so its last digits may be lost"):
        as_id_array(np.array([1, -2 * limit], dtype=dtype))


def test_repeated_ids_are_refused() -> None:
    with pytest.raises(InputError, match="3 ids, 2 distinct"):
        NodeIds.of(["a", "b", "a"])


def test_take_returns_ids_in_the_order_asked() -> None:
    assert NodeIds.of(["a", "b", "c"]).take(np.array([2, 0])).to_pylist() == ["c", "a"]


def test_equality_and_repr() -> None:
    assert NodeIds.range(3) == NodeIds.of([0, 1, 2])
    assert NodeIds.range(3) != NodeIds.range(4)
    assert repr(NodeIds.of(["a", "b", "c", "d"])) == "NodeIds(4: 'a', 'b', 'c', …)"


@given(st.lists(st.text(max_size=8), unique=True))
def test_text_ids_survive_storage_letter_for_letter(names: list[str]) -> None:
    names = [name for name in names if name.isprintable()]
    ids = NodeIds.of(names)
    again = NodeIds.from_arrays(ids.to_arrays())
    assert [str(name) for name in again] == names
    assert again.lookup(names).tolist() == list(range(len(names)))


def test_a_sliced_array_is_stored_from_its_own_start() -> None:
    ids = NodeIds(pa.array(["x", "yy", "zzz"], type=pa.large_string()).slice(1))
    assert list(NodeIds.from_arrays(ids.to_arrays())) == ["yy", "zzz"]


def test_integers_are_their_own_keys() -> None:
    assert NodeIds.of([10, -7, 0]).keys().tolist() == [10, -7, 0]


def test_an_integer_has_the_same_key_among_text() -> None:
    assert NodeIds.of(["-7", "x", "999999999999999999"]).keys()[[0, 2]].tolist() == [-7, 999999999999999999]


@pytest.mark.parametrize("odd", ["007", "+5", "1.0", "-0", " 5", "5\n"])
def test_text_that_only_looks_like_an_integer_has_a_key_of_its_own(odd: str) -> None:
    keys = NodeIds.of([odd, "5", "7", "0", "1", "a"]).keys().tolist()
    assert len(set(keys)) == 6


@given(st.lists(st.text(max_size=5).filter(str.isprintable), unique=True, min_size=2))
def test_a_key_does_not_depend_on_the_other_ids(names: list[str]) -> None:
    keys = NodeIds.of([*names, "none of them"]).keys()
    assert NodeIds(pa.array(names[1:], type=pa.large_string())).keys().tolist() == keys[1:-1].tolist()


def test_a_sliced_array_has_the_keys_of_its_own_ids() -> None:
    values = pa.array(["x", "yy", "3"], type=pa.large_string())
    assert NodeIds(values.slice(1)).keys().tolist() == NodeIds(values).keys()[1:].tolist()


def test_a_text_or_a_number_alone_is_one_id() -> None:
    ids = NodeIds.of([1, 7, 17])
    assert ids.lookup("17").tolist() == ids.lookup(17).tolist() == ids.lookup(np.int64(17)).tolist() == [2]


def test_a_tensor_of_ids_is_found() -> None:
    assert NodeIds.of([1, 7, 17]).lookup(torch.tensor([17, 5])).tolist() == [2, -1]


def test_an_id_beyond_64_bits_is_text() -> None:
    assert NodeIds.of([2**70, 1]).lookup([2**70, 2**71]).tolist() == [0, -1]
