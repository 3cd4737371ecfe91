"""The compiled encoder against a plain one in numpy, on fresh random tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chronospike.data.attributes import AttributeEncoder, Column


def encode_plainly(
    encoder: AttributeEncoder, rows: NDArray[np.float32], columns: tuple[Column, ...]
) -> NDArray[np.float64]:
    """`[K, width]`, a column at a time."""
    places = {column.name: index for index, column in enumerate(columns)}
    parts: list[NDArray[Any]] = []
    for encoding in encoder.columns:
        column, values = columns[places[encoding.name]], rows[:, places[encoding.name]].astype(np.float64)
        absent = np.isnan(values)
        if encoding.kind == "number":
            parts.append(np.where(absent, 0.0, np.interp(values, encoding.knots, encoding.scores)))
        else:
            texts = [None if gap else column.values[int(code)] for gap, code in zip(absent, values, strict=True)]
            parts += [np.array([text == value for text in texts], dtype=float) for value in encoding.values]
            if encoding.has_other:
                others = [text is not None and text not in encoding.values for text in texts]
                parts.append(np.array(others, dtype=float))
        if encoding.has_missing:
            parts.append(absent.astype(float))
    return np.asarray((np.stack(parts, axis=1) - np.array(encoder.means)) * encoder.scale, dtype=np.float64)


@pytest.mark.parametrize("seed", range(8))
def test_the_compiled_encoder_agrees_with_the_plain_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = (
        Column("amount"),
        Column("region", "category", tuple(f"r{k:02d}" for k in range(30))),
        Column("visits"),
        Column("kind", "category", ("a", "b")),
    )
    values = np.column_stack(
        [np.exp(3 * rng.normal(size=400)), rng.geometric(0.2, 400).clip(max=30) - 1, rng.poisson(0.4, 400),
         rng.integers(0, 2, 400)]
    ).astype(np.float32)  # fmt: skip
    values[rng.random(values.shape) < 0.1] = np.nan
    encoder = AttributeEncoder.fit(values[:200], columns)
    order = rng.permutation(4)
    shuffled, named = values[:, order], tuple(columns[k] for k in order)
    found = encoder.bind(named).encode(shuffled)
    np.testing.assert_allclose(found, encode_plainly(encoder, shuffled, named), atol=1e-5)
