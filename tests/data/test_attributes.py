from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.special import ndtri

from chronospike.data.attributes import (
    AttributeEncoder,
    Column,
    check_codes,
    columns_from_json,
    default_columns,
)
from chronospike.errors import InputError, StorageError

NAN = float("nan")
COLOUR = Column("colour", "category", ("blue", "green", "red"))
AGE = Column("age")


def encode(encoder: AttributeEncoder, values: Any, columns: tuple[Column, ...]) -> dict[str, list[float]]:
    """The encoded columns by name, before they are centred and scaled."""
    rows = np.asarray(values, dtype=np.float32)
    found = replace(encoder, means=(0.0,) * encoder.width, scale=1.0).bind(columns).encode(rows)
    return {name: found[:, k].tolist() for k, name in enumerate(encoder.names)}


def numbers(values: NDArray[Any]) -> AttributeEncoder:
    return AttributeEncoder.fit(np.asarray(values, dtype=np.float32)[:, None], (AGE,))


def score(encoder: AttributeEncoder, values: Any) -> NDArray[np.float32]:
    return np.array(encode(encoder, np.asarray(values)[:, None], (AGE,))["age"])


def test_a_number_becomes_its_normal_score() -> None:
    values = np.arange(1001)
    found = score(numbers(values), [500, 158.5, 841.5, 0, 1000, -50, 4000])
    np.testing.assert_allclose(found, [0, -1, 1, -3, 3, -3, 3], atol=0.02)


def test_heavy_tails_and_units_do_not_matter() -> None:
    plain = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    heavy = np.exp(4 * plain)
    np.testing.assert_allclose(score(numbers(plain), plain), score(numbers(heavy), heavy), atol=0.15)
    assert np.abs(score(numbers(heavy), heavy)).max() <= 3


def test_values_that_many_nodes_share_take_the_middle_of_their_ranks() -> None:
    values = np.array([0] * 80 + [1] * 20)
    np.testing.assert_allclose(score(numbers(values), [0, 1]), [ndtri(0.4), ndtri(0.9)], atol=1e-6)


def test_a_value_of_one_node_in_a_thousand_is_told_apart() -> None:
    values = np.zeros(1000)
    values[7] = 1
    low, high = score(numbers(values), [0, 1])
    assert high - low > 2


def test_a_constant_column_says_nothing() -> None:
    assert score(numbers(np.full(50, 7.0)), [7, 9, -2]).tolist() == [0, 0, 0]


def test_a_column_without_any_value_says_nothing() -> None:
    encoder = AttributeEncoder.fit(np.full((4, 1), NAN), (AGE,))
    assert encode(encoder, [[NAN], [3]], (AGE,)) == {"age": [0, 0], "age missing": [1, 0]}


def test_missing_numbers_count_as_average_and_have_an_indicator() -> None:
    encoder = AttributeEncoder.fit(np.array([[1], [2], [3], [NAN]]), (AGE,))
    found = encode(encoder, [[2], [NAN]], (AGE,))
    assert found == {"age": [0, 0], "age missing": [0, 1]}


def test_categories_are_one_hot_and_rare_ones_are_other() -> None:
    codes = np.array([[0]] * 5 + [[2]] * 4 + [[1]])
    encoder = AttributeEncoder.fit(codes, (COLOUR,))
    found = encode(encoder, [[0], [1], [2]], (COLOUR,))
    assert found == {"colour=blue": [1, 0, 0], "colour=red": [0, 0, 1], "colour=other": [0, 1, 0]}


def test_at_most_a_hundred_categories_have_a_column() -> None:
    column = Column("who", "category", tuple(f"u{k:03d}" for k in range(300)))
    codes = np.repeat(np.arange(300), 3)[:, None].astype(np.float32)
    assert AttributeEncoder.fit(codes, (column,)).width == 101


def test_columns_are_found_by_name_whatever_their_order() -> None:
    values = np.array([[10, 0], [20, 0], [30, 0], [40, 2], [50, 2], [60, 2]], dtype=np.float32)
    encoder = AttributeEncoder.fit(values, (AGE, COLOUR))
    one = encode(encoder, values, (AGE, COLOUR))
    other = encode(encoder, values[:, ::-1], (COLOUR, AGE))
    assert one == other
    further = np.column_stack([values[:, 1], np.ones(6), values[:, 0]])
    assert encode(encoder, further, (COLOUR, Column("more"), AGE)) == one


def test_codes_of_another_table_are_read_by_their_values() -> None:
    encoder = AttributeEncoder.fit(np.array([[0], [0], [0], [2], [2], [2]]), (COLOUR,))
    shifted = Column("colour", "category", ("amber", "blue", "red"))
    assert encode(encoder, [[0], [1], [2]], (shifted,)) == {"colour=blue": [0, 1, 0], "colour=red": [0, 0, 1]}


@pytest.mark.parametrize(("fitted", "given"), [(("False", "True"), ("false", "true")), (("false", "true"), ("TRUE",))])
def test_booleans_of_a_table_and_of_a_text_file_are_the_same(fitted: tuple[str, ...], given: tuple[str, ...]) -> None:
    flag = Column("vip", "category", fitted)
    encoder = AttributeEncoder.fit(np.array([[0], [0], [0], [1], [1], [1]]), (flag,))
    other, last = Column("vip", "category", given), [[len(given) - 1]]
    assert encode(encoder, last, (other,)) == encode(encoder, [[1]], (flag,))
    assert encoder.bind((other,), np.array(last)).notes == []


def test_new_categories_and_new_gaps_are_counted() -> None:
    encoder = AttributeEncoder.fit(np.array([[0, 1.0]] * 3 + [[2, 2.0]] * 3), (COLOUR, AGE))
    columns = (Column("colour", "category", ("amber", "blue")), AGE, Column("height"))
    values = np.array([[0, NAN, 1], [0, 2, 1], [1, NAN, 1]])
    notes = encoder.bind(columns, values).notes
    assert notes == [
        "ignoring attributes that the model does not use: height",
        "attribute 'colour': 2 values unknown to the model are read as 'other'",
        "missing values in attributes that had none in training: age (2)",
    ]


def test_a_node_without_a_row_is_one_note_for_all_columns() -> None:
    encoder = AttributeEncoder.fit(np.array([[0, 1.0]] * 3 + [[2, 2.0]] * 3), (COLOUR, AGE))
    notes = encoder.bind((COLOUR, AGE), np.array([[0, 1.0], [NAN, NAN]])).notes
    assert notes == ["missing values in attributes that had none in training: colour (1), age (1)"]


def test_a_missing_column_is_refused_with_the_nearest_name() -> None:
    encoder = numbers(np.arange(5))
    with pytest.raises(
        InputError, match="needs the attribute 'age', which the graph does not have.*Did you mean 'aged'"
    ):
        encoder.bind((Column("aged"),))


def test_a_column_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="attribute 'age' was a number when the model was trained, and is text here"):
        numbers(np.arange(5)).bind((Column("age", "category", ("old",)),))


@pytest.mark.parametrize("column", [AGE, COLOUR])
def test_a_column_without_any_value_is_of_every_kind(column: Column) -> None:
    encoder = AttributeEncoder.fit(np.array([[0], [1], [0], [NAN]], dtype=np.float32), (column,))
    empty = Column(column.name, "category" if column.kind == "number" else "number")
    gaps = np.full((3, 1), NAN, dtype=np.float32)
    as_trained = encoder.bind((column,), gaps)
    found = encoder.bind((empty,), gaps)
    assert found.notes == as_trained.notes
    np.testing.assert_array_equal(found.encode(gaps), as_trained.encode(gaps))


def test_columns_are_centred_and_the_block_has_variance_one() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=500) * 1e6, rng.integers(0, 3, 500)])
    values[::9, 0] = np.nan
    found = AttributeEncoder.fit(values, (AGE, COLOUR)).bind((AGE, COLOUR)).encode(values)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-6)
    assert found.std() == pytest.approx(1, abs=1e-5)


def test_steps_are_fitted_together() -> None:
    values = np.arange(60, dtype=np.float32).reshape(3, 20, 1)
    assert AttributeEncoder.fit(values, (AGE,)) == AttributeEncoder.fit(values.reshape(60, 1), (AGE,))


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (30, 2), elements=st.floats(-(2.0**99), 2.0**99, width=32) | st.just(NAN)))
def test_an_encoder_read_back_from_json_gives_the_same_bits(values: NDArray[np.float32]) -> None:
    columns = (AGE, Column("size"))
    encoder = AttributeEncoder.fit(values, columns)
    again = AttributeEncoder.from_json(json.loads(json.dumps(encoder.to_json())), "attributes.json")
    found = encoder.bind(columns).encode(values)
    np.testing.assert_array_equal(again.bind(columns).encode(values), found)
    assert np.isfinite(found).all()


def described(column: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"columns": [column], "means": [0.0], "scale": 1.0, **changes}


@pytest.mark.parametrize(
    "content",
    [None, 5, [1], {}, described({}), described({"name": "age"}), described({"name": "age", "kind": "fish"}),
     described({"name": "age", "kind": "number", "knots": [2, 1], "scores": [0, 1]}),
     described({"name": "age", "kind": "number", "knots": [], "scores": []}), described({"name": "a", "surprise": 1}),
     described({"name": "age", "kind": "number", "knots": [1, "b"], "scores": [0, 1]}),
     described({"name": "age", "kind": "number", "knots": [1], "scores": [0]}, means=[]),
     described({"name": "age", "kind": "number", "knots": [1], "scores": [0]}, scale=float("nan"))],
)  # fmt: skip
def test_a_damaged_description_is_refused(content: Any) -> None:
    with pytest.raises(StorageError, match="attributes.json does not describe attributes"):
        AttributeEncoder.from_json(content, "attributes.json")


def test_columns_survive_json() -> None:
    columns = (AGE, COLOUR)
    described = [asdict(column) for column in columns]
    assert columns_from_json(json.loads(json.dumps(described)), 2, "meta.json") == columns
    for content, width in ((described, 3), ([{"name": "a"}], 1), (None, 1), ("ab", 2)):
        with pytest.raises(StorageError, match="meta.json does not (describe|match) its attributes"):
            columns_from_json(content, width, "meta.json")


def test_codes_that_stand_for_nothing_are_found() -> None:
    assert check_codes(np.array([[0.0], [2.0], [NAN]]), (COLOUR,)) is None
    for bad in (3.0, -1.0, 0.5):
        assert "codes that its 3 categories do not have" in str(check_codes(np.array([[bad]]), (COLOUR,)))
    assert "infinite" in str(check_codes(np.array([[np.inf]]), (AGE,)))


def test_columns_of_an_array_are_numbered() -> None:
    assert default_columns(2) == (Column("x0"), Column("x1"))
