from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronospike.errors import InputError
from chronospike.experiments.cells import (
    RESULT,
    Variant,
    folder_of,
    is_settled,
    make_grid,
    read_result,
    read_variants,
)
from chronospike.files import write_json
from chronospike.methods.registry import owned_preset
from tests.experiments.small_grids import cell, graph_folder


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return graph_folder(tmp_path_factory.mktemp("graphs") / "mine")


def test_a_grid_is_every_variant_at_every_ratio_with_every_seed() -> None:
    variants = [Variant("majority", "majority"), Variant("far", "label-propagation", {"rounds": 9})]
    grid = make_grid(variants, [0.4, 0.8], [3, 4], {"rounds": 7, "epochs": 5}, {"alpha": 0.5})
    assert [(one.name, settings.ratio, settings.seed) for one, settings in grid] == [
        (name, ratio, seed) for seed in (3, 4) for ratio in (0.4, 0.8) for name in ("majority", "far")
    ]
    far = grid[1][1].model_dump()
    assert (far["rounds"], far["alpha"], far["recency"]) == (9, 0.5, 3.0)


@pytest.mark.parametrize("name", ["paper_recipe.yaml", "whole_table.yaml"])
def test_the_grids_of_the_benchmarks_can_be_run(name: str) -> None:
    variants = read_variants(Path(__file__).parents[2] / "benchmarks" / name)
    assert len(make_grid(variants, [0.8], [0], owned_preset("paper"), {})) == len(variants) > 2


def test_a_setting_that_no_method_of_the_grid_has_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="no setting 'alpa'. Did you mean 'alpha'?"):
        make_grid([Variant("a", "majority"), Variant("b", "label-propagation")], [0.8], [0], {}, {"alpa": 1})


@pytest.mark.parametrize("settings", [{"alpa": 1}, {"alpha": 7}])
def test_a_wrong_setting_of_a_variant_names_the_variant(settings: dict[str, Any]) -> None:
    grid = [Variant("plain", "label-propagation"), Variant("my row", "label-propagation", settings)]
    with pytest.raises(InputError, match="^'my row': .*alp"):
        make_grid(grid, [0.8], [0], {}, {})


def test_the_name_of_a_variant_does_not_make_another_cell(graph: Path) -> None:
    assert cell(graph, "majority", variant="plain").id == cell(graph, "majority").id


def test_only_what_says_which_labels_are_known_makes_no_other_embeddings(graph: Path) -> None:
    plain = cell(graph, "deepwalk")
    assert cell(graph, "majority").embeddings is None
    same = [cell(graph, "deepwalk", ratio=0.4), cell(graph, "deepwalk", split_seed=1, validation=0.1)]
    others = [cell(graph, "deepwalk", seed=1), cell(graph, "node2vec"), cell(graph, "deepwalk", length=9)]
    assert {one.embeddings for one in same} == {plain.embeddings}
    assert plain.embeddings not in {one.embeddings for one in [*others, replace(plain, data="other data")]}


def test_whatever_the_result_depends_on_makes_another_cell(graph: Path) -> None:
    plain = cell(graph, "label-propagation")
    others = [
        cell(graph, "label-propagation-unweighted"),
        cell(graph, "label-propagation", seed=1),
        cell(graph, "label-propagation", ratio=0.6),
        cell(graph, "label-propagation", rounds=9),
        cell(graph, "label-propagation", split_seed=1),
        replace(plain, features="own"),
        replace(plain, recipes=({"method": "deepwalk"},)),
        replace(plain, data="other data"),
        replace(plain, device="cuda:0"),
    ]
    assert len({one.id for one in [plain, *others]}) == 10


def test_how_features_are_made_is_no_matter_to_a_method_without(graph: Path) -> None:
    assert cell(graph, "majority", feature_method="fastrp").id == cell(graph, "majority").id


def test_a_moved_graph_folder_is_the_same_data(graph: Path) -> None:
    plain = cell(graph, "majority")
    assert replace(plain, graph=Path("/elsewhere")).id == plain.id


def test_a_result_bears_the_names_of_the_present_grid(graph: Path, tmp_path: Path) -> None:
    one = cell(graph, "majority", variant="new name")
    assert read_result(tmp_path, one) is None
    write_json(folder_of(tmp_path, one) / RESULT, {"status": "done", "macro_f1": 0.5, "variant": "old name"})
    found = read_result(tmp_path, one)
    assert found is not None
    assert (found["variant"], found["ratio"], found["macro_f1"]) == ("new name", 0.8, 0.5)


@pytest.mark.parametrize(
    ("result", "budget", "settled"),
    [
        (None, None, False),
        ({"status": "done"}, 1.0, True),
        ({"status": "failed"}, None, False),
        ({"status": "time", "budget": 60.0}, 60.0, True),
        ({"status": "time", "budget": 60.0}, 90.0, False),
        ({"status": "time", "budget": 60.0}, None, False),
    ],
)
def test_a_cell_is_fitted_again_only_if_that_may_change_how_it_ends(
    result: dict[str, object] | None, budget: float | None, settled: bool
) -> None:
    assert is_settled(result, budget) == settled


def test_variants_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "full: {method: logistic}\nfirst only:\n  method: logistic\n  settings: {strengths: [1]}\n"
    )
    assert read_variants(tmp_path / "grid.yaml") == [
        Variant("full", "logistic"), Variant("first only", "logistic", {"strengths": [1]}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no variants"),
        ("- a", "must hold names and values"),
        ("a: logistic", "'a' needs a method"),
        ("a: {method: logistic, rounds: 3}", "may have 'method' and 'settings'"),
        ("a: {method: logistic, settings: {seed: 3}}", "sets seed, which varies"),
        ("logistic: {method: logistic, settings: {strengths: [1]}}", "Give this variant another name"),
    ],
)
def test_a_file_of_variants_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_variants(tmp_path / "grid.yaml")
