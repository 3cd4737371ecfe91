from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from chronospike.data.storage import open_graph
from chronospike.features.options import FastRP
from tests.small_runs import command, contents, refused, saved_graph, worked

WALKS = ("--dimension", "8", "--walks", "1", "--length", "5", "--window", "2", "--threads", "1", "--device", "cpu")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return saved_graph(tmp_path / "g", features=None)


@pytest.mark.parametrize(
    ("method", "options", "name"),
    [
        ("fastrp", ("--dimension", "8"), "fastrp"),
        ("svd", ("--dimension", "8", "--threads", "1"), "svd-cpu1"),
        ("deepwalk", WALKS, "deepwalk-cpu1"),
        ("deepwalk", (*WALKS, "--warm-start", "--threads", "2"), "deepwalk-cpu2"),
    ],
)
def test_features_are_made_for_every_step_and_found_again(
    capsys: pytest.CaptureFixture[str], graph: Path, method: str, options: tuple[str, ...], name: str
) -> None:
    said = json.loads(worked(capsys, "features", method, graph, *options, "--seed", "3", "--json"))
    assert (said["name"], said["shape"], said["dtype"]) == (name, [5, 120, 8], "float32")
    assert (said["complete"], said["recipe"]["method"], said["recipe"]["seed"]) == (True, method, 3)
    listed = json.loads(worked(capsys, "features", "list", graph, "--json"))
    assert [one["name"] for one in listed] == [name]
    assert json.loads(worked(capsys, "data", "info", graph, "--json"))["feature_sets"] == [name]
    (features,) = open_graph(graph).made_features
    assert np.isfinite(features).all()


def test_activity_has_columns_and_no_seed(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    assert "seed" not in worked(capsys, "features", "activity", graph)
    assert open_graph(graph, features="activity").made_features[0].shape == (5, 120, 9)


def test_people_are_told_the_seed_and_the_place(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    said = worked(capsys, "features", "fastrp", graph, "--dimension", "4", "--precision", "half", "--name", "quick")
    assert "seed 0" in said
    assert "fastrp [5, 120, 4] float16" in said
    assert str(graph / "features" / "quick") in said
    assert "quick" in worked(capsys, "features", "list", graph)


def test_the_commands_defaults_are_those_of_the_method(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    said = json.loads(worked(capsys, "features", "fastrp", graph, "--json"))
    assert said["recipe"] == json.loads(json.dumps(FastRP().recipe()))


def test_a_set_that_is_there_is_kept_and_another_recipe_of_its_name_refused(
    capsys: pytest.CaptureFixture[str], graph: Path
) -> None:
    worked(capsys, "features", "fastrp", graph, "--dimension", "4")
    before = contents(graph)
    worked(capsys, "features", "fastrp", graph, "--dimension", "4")
    said = refused(capsys, "features", "fastrp", graph, "--dimension", "6")
    assert "exists with shape [5, 120, 4], not [5, 120, 6]. Pass --overwrite" in said
    assert contents(graph) == before
    worked(capsys, "features", "fastrp", graph, "--dimension", "6", "--overwrite")
    assert open_graph(graph).made_features[0].shape[-1] == 6


def test_a_graph_without_sets_says_how_to_make_one(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    assert "chronospike features deepwalk GRAPH" in worked(capsys, "features", "list", graph)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fastrp", "--precision", "double"), "'double' is not one of 'single', 'half'"),
        (("fastrp", "--dimension", "0"), "dimension is 0"),
        (("fastrp", "--first-hop", "5", "--last-hop", "3"), "--first-hop 5 and --last-hop 3"),
        (("svd", "--dimension", "0"), "dimension is 0"),
        (("svd", "--recency", "-1"), "recency is -1.0, and must be in 0..100"),
        (("deepwalk", "--walks", "0"), "walks is 0"),
        (("deepwalk", "--unseen", "zreo"), "'zreo' is not one of 'noise', 'zero'. Did you mean 'zero'?"),
        (("deepwalk", "--name", "own"), "a feature set cannot be named 'own'"),
        (("fastrp", "--name", "own+mine"), "a feature set cannot be named 'own+mine'"),
        (("deepwalk", "--device", "cud"), "device 'cud' is not known. Did you mean 'cuda'?"),
        (("deepwalk", "--name", "../elsewhere"), "../elsewhere"),
    ],
)
def test_bad_options_are_one_line_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], graph: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = contents(graph.parent)
    assert message in refused(capsys, "features", arguments[0], graph, *arguments[1:])
    assert contents(graph.parent) == before


@pytest.mark.parametrize("verb", ["fastrp", "deepwalk", "svd", "activity"])
def test_interrupted_it_says_that_the_same_command_resumes(
    capsys: pytest.CaptureFixture[str], graph: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chronospike.features.make.write_features", interrupt)
    result = command(capsys, "features", verb, graph)
    kept = "Finished steps are kept. Run the same command again to resume"
    assert (result.code, result.err) == (130, f"chronospike: interrupted. {kept}\n")


def test_something_else_is_no_graph_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for verb in ("fastrp", "deepwalk", "svd", "activity", "list"):
        assert "is not a graph folder" in refused(capsys, "features", verb, tmp_path)
