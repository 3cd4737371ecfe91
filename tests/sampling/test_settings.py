from __future__ import annotations

from typing import Any

import pytest

from chronospike.errors import InputError
from chronospike.rng import stream
from chronospike.sampling.settings import SamplingSettings, as_fanouts


@pytest.mark.parametrize(
    ("fanout", "p", "from_history"), [(5, 0.5, 2), (2, 0.5, 1), (5, 1.0, 5), (5, 0.1, 1), (10, 0.3, 3), (4, 0.0, 1)]
)
def test_split_takes_the_floor_of_the_share_and_at_least_one(fanout: int, p: float, from_history: int) -> None:
    assert SamplingSettings((fanout,), p, mix="split").history_slots == (from_history,)


def test_bernoulli_fixes_no_slot() -> None:
    assert SamplingSettings((5, 2)).history_slots == (-1, -1)


def test_tree_size_counts_the_root_and_every_hop() -> None:
    assert SamplingSettings((5, 2)).tree_size == 16


def test_a_single_number_is_one_hop() -> None:
    assert as_fanouts(5) == as_fanouts([5]) == (5,)


def test_epochs_and_purposes_have_streams_of_their_own() -> None:
    assert SamplingSettings(seed=4).key(2) == stream(4, "sampler", 2)
    assert SamplingSettings(seed=4).key(2, "inference") == stream(4, "inference", 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fanouts": ()}, r"fanouts \[\]: give one whole number, at least 1, for each hop"),
        ({"fanouts": (5, 0)}, r"fanouts \[5, 0\]: .* at least 1"),
        ({"fanouts": (2.5,)}, r"fanouts \[2.5\]"),
        ({"p": 1.5}, r"p 1.5 is outside 0..1"),
        ({"p": -0.1}, r"p -0.1 is outside 0..1"),
        ({"p": float("nan")}, r"p nan is outside 0..1"),
        ({"p": "half"}, r"p 'half' is outside 0..1"),
        ({"history": "strickt"}, r"history 'strickt' is not one of strict, inclusive. Did you mean 'strict'\?"),
        ({"mix": "bernouli"}, r"mix 'bernouli' is not one of bernoulli, split. Did you mean 'bernoulli'\?"),
        ({"seed": 0.5}, r"seed 0.5 is not a whole number"),
    ],
)
def test_a_setting_out_of_range_names_the_range(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SamplingSettings(**wrong)
