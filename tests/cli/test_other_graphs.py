from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chronospike.data.ids import NodeIds
from chronospike.data.storage import save_graph
from tests.small_runs import (
    assignments,
    command,
    contents,
    dated_graph,
    read_csv,
    refused,
    saved_graph,
    train,
    with_other_future,
    worked,
)

STRANGERS = NodeIds.of([f"x{k:04d}" for k in range(120)])


def test_another_graph_is_scored_without_touching_the_run(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    other = save_graph(with_other_future(dated_graph(), 2), tmp_path / "other")
    before = contents(place / "run")
    said = worked(capsys, "evaluate", place / "run", "--graph", other)
    assert "is not the graph that" in said
    assert "nothing was written. Pass -o FOLDER" in said
    worked(capsys, "evaluate", place / "run", "--graph", other, "-o", tmp_path / "scores")
    assert contents(place / "run") == before
    assert set(contents(tmp_path / "scores")) == {
        "config.yaml", "metrics.jsonl", "metrics.json", "predictions.csv", "report.html"
    }  # fmt: skip
    assert json.loads((tmp_path / "scores" / "metrics.json").read_text())["graph"]["name"] == "other"
    again = ("evaluate", place / "run", "--graph", other, "-o", tmp_path / "scores")
    assert "exists. Choose another name or pass --overwrite" in refused(capsys, *again)


def test_steps_of_another_kind_are_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = replace(dated_graph(), facts={"step_rule": "every 1w from 2022-01-03"})
    run = train(capsys, save_graph(graph, tmp_path / "g"), tmp_path / "run")
    for width, noted in (("1d", True), ("1w", False)):
        rule = {"step_rule": f"every {width} from 2022-02-14"}
        other = save_graph(replace(with_other_future(graph, 2), facts=rule), tmp_path / width)
        said = worked(capsys, "predict", run, "--graph", other, "-o", tmp_path / "p.csv")
        assert ("('every 1d', in training 'every 1w')" in said) is noted


def test_a_run_is_never_replaced_by_scores(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    before = contents(place / "run")
    said = refused(capsys, "evaluate", place / "run", "-o", place / "run", "--overwrite")
    assert "is a run, whose weights would be lost" in said
    assert contents(place / "run") == before


def test_a_graph_imported_again_keeps_the_runs_own_labels_and_split(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph = dated_graph()
    assert graph.labels is not None
    run = train(capsys, save_graph(graph, tmp_path / "g"), tmp_path / "run")
    before = contents(run)
    relabelled = replace(graph, labels=1 - graph.labels, class_names=("cat", "dog"))
    save_graph(relabelled, tmp_path / "g", overwrite=True)
    found = json.loads(worked(capsys, "evaluate", run, "--json"))
    assert found["test"] == json.loads(before["metrics.json"])["test"]
    assert contents(run) == before
    worked(capsys, "predict", run, "-o", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == before["predictions.csv"]


def test_another_graph_that_does_not_fit_is_refused(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    graph = dated_graph()
    assert graph.features is not None
    folder = save_graph(graph.with_features(graph.features[..., :5]), tmp_path / "g")
    said = refused_after_notes(capsys, "predict", place / "run", "--graph", folder, "-o", tmp_path / "out.csv")
    assert "needs the attribute 'x5', which the graph does not have" in said


def test_a_graph_without_labels_is_used_with_those_of_the_run(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    bare = save_graph(replace(dated_graph(), labels=None, class_names=()), tmp_path / "bare")
    for more in ([], ["--smooth"]):
        for name, graph in (("known", place / "g"), ("bare", bare)):
            worked(capsys, "predict", place / "run", "--graph", graph, "-o", tmp_path / f"{name}.csv", *more)
        assert (tmp_path / "bare.csv").read_bytes() == (tmp_path / "known.csv").read_bytes()


def test_a_graph_of_strangers_without_labels_is_predicted_but_not_scored(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    bare = save_graph(replace(dated_graph(), labels=None, class_names=(), ids=STRANGERS), tmp_path / "bare")
    worked(capsys, "predict", place / "run", "--graph", bare, "-o", tmp_path / "out.csv")
    assert list(read_csv(tmp_path / "out.csv")[0]) == ["node", "class", "probability 0", "probability 1"]
    assert "no node of this graph can be scored" in refused_after_notes(
        capsys, "evaluate", place / "run", "--graph", bare
    )
    said = refused_after_notes(capsys, "predict", place / "run", "--graph", bare, "--smooth", "-o", tmp_path / "s.csv")
    assert "smoothing needs labels" in said
    assert not (tmp_path / "s.csv").exists()


def test_a_graph_of_strangers_with_labels_is_scored_without_the_simple_methods(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    other = save_graph(replace(dated_graph(), ids=STRANGERS), tmp_path / "other")
    said = worked(capsys, "evaluate", place / "run", "--graph", other, "-o", tmp_path / "scores")
    assert "90 of the 90 training nodes are not in" in said
    assert "120 test nodes" in said
    assert "label propagation" not in said
    assert "validation  " not in said
    assert (tmp_path / "scores" / "report.html").is_file()


def test_fastrp_features_of_strangers_are_refused_unless_forced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    graph = replace(dated_graph(), features=None)
    folder, made = save_graph(graph, tmp_path / "g"), {"feature_dimension": 4, "epochs": 1}
    run = train(capsys, folder, tmp_path / "run", "--features", "fastrp", **made)
    arguments = ("predict", run, "--graph", save_graph(replace(graph, ids=STRANGERS), tmp_path / "other"))
    said = refused_after_notes(capsys, *arguments, "-o", tmp_path / "out.csv")
    assert "FastRP features, which depend on the ids of the nodes" in said
    assert not (tmp_path / "out.csv").exists()
    worked(capsys, *arguments, "-o", tmp_path / "out.csv", "--force")


def refused_after_notes(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    result = command(capsys, *arguments)
    assert result.code == 2
    assert all(line.startswith("note: ") for line in result.out.splitlines())
    return result.err


@pytest.mark.parametrize("method", [("deepwalk", "--walks", "2"), ("svd",)], ids=["deepwalk", "svd"])
def test_features_of_other_edges_are_refused_unless_forced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, method: tuple[str, ...]
) -> None:
    graph = dated_graph()
    graphs = {"g": graph, "bare": replace(graph, labels=None, class_names=()), "other": with_other_future(graph, 2)}
    for name, each in graphs.items():
        save_graph(replace(each, features=None), tmp_path / name)
    verb, options = method[0], (*method[1:], "--dimension", "8", "--name", "mine")
    worked(capsys, "features", verb, tmp_path / "g", *options)
    run = train(capsys, tmp_path / "g", tmp_path / "run", epochs=1, features="mine")
    for folder in ("bare", "other"):
        worked(capsys, "features", verb, tmp_path / folder, *options)
    worked(capsys, "embed", run, "--graph", tmp_path / "bare", "-o", tmp_path / "z.npy")
    for verb in ("embed", "evaluate", "predict"):
        arguments = (verb, run, "--graph", tmp_path / "other")
        where = ("-o", tmp_path / ("out.csv" if verb == "predict" else "other.npy")) if verb != "evaluate" else ()
        said = refused_after_notes(capsys, *arguments, *where)
        assert "DeepWalk or SVD features, and those of another graph are in a different embedding space" in said
        worked(capsys, *arguments, *where, "--force")
        worked(capsys, *arguments, *where, "--carry-features")
    (made,) = (tmp_path / "other" / "features").glob("mine-from-*")
    facts = json.loads((run / "run.json").read_text())
    assert json.loads((made / "meta.json").read_text())["recipe"]["start"] == facts["edges"]


@pytest.fixture
def payments(tmp_path: Path) -> Path:
    """A run on a graph of 60 accounts with attributes, in `tmp_path / "run"`."""
    rng = np.random.default_rng(0)
    edges = [f"a{u},a{v},{t}" for u, v, t in rng.integers(0, 60, (400, 3)) if u != v]
    (tmp_path / "edges.csv").write_text("source,target,time\n" + "\n".join(edges) + "\n")
    (tmp_path / "labels.csv").write_text("node,label\n" + "".join(f"a{v},{'xy'[v % 2]}\n" for v in range(60)))
    amounts = np.exp(3 * rng.normal(size=60))
    rows = [f"a{v},{amounts[v]:.3f},{('de', 'fr', 'it')[v % 3]},{v % 7}" for v in range(60)]
    (tmp_path / "attributes.csv").write_text("node,amount,country,age\n" + "\n".join(rows) + "\n")
    return tmp_path


def imported(capsys: pytest.CaptureFixture[str], place: Path, name: str, attributes: str) -> Path:
    (place / f"{name}.csv").write_text(attributes)
    options = ("--labels", place / "labels.csv", "--features", place / f"{name}.csv", "--every", "10")
    worked(capsys, "data", "import", place / "edges.csv", *options, "-o", place / name)
    return place / name


def test_columns_of_another_table_are_read_by_name(capsys: pytest.CaptureFixture[str], payments: Path) -> None:
    text = (payments / "attributes.csv").read_text()
    run = train(capsys, imported(capsys, payments, "g", text), payments / "run")
    rows = [line.split(",") for line in text.splitlines()]
    swapped = "\n".join(",".join([row[0], row[3], row[1], row[2]]) for row in rows) + "\n"
    other = imported(capsys, payments, "swapped", swapped)
    worked(capsys, "predict", run, "--graph", other, "-o", payments / "swapped-out.csv")
    assert (payments / "swapped-out.csv").read_bytes() == (run / "predictions.csv").read_bytes()
    missing = "\n".join(",".join([row[0], row[1], row[2]]) for row in rows) + "\n"
    other = imported(capsys, payments, "missing", missing)
    said = refused_after_notes(capsys, "predict", run, "--graph", other, "-o", payments / "no.csv")
    assert "needs the attribute 'age'" in said
    other = imported(capsys, payments, "new", text.replace(",fr,", ",uk,"))
    said = worked(capsys, "predict", run, "--graph", other, "-o", payments / "new-out.csv")
    assert "attribute 'country': 20 values unknown to the model are read as 'other'" in said


def test_rare_values_are_nothing_new_on_the_graph_of_the_training(
    capsys: pytest.CaptureFixture[str], payments: Path
) -> None:
    text = (payments / "attributes.csv").read_text().replace(",de,", ",at,", 1)
    run = train(capsys, imported(capsys, payments, "g", text), payments / "run", epochs=1)
    assert "note:" not in worked(capsys, "predict", run, "-o", payments / "out.csv")


def test_own_attributes_and_made_features_together(capsys: pytest.CaptureFixture[str], payments: Path) -> None:
    graph = imported(capsys, payments, "g", (payments / "attributes.csv").read_text())
    made = {"feature_dimension": 4, "epochs": 1}
    options = ("--device", "cpu", "--features", "own+fastrp")
    worked(capsys, "train", graph, "-o", payments / "run", *options, *assignments(**made))
    facts = json.loads((payments / "run" / "run.json").read_text())
    assert facts["features"] == "own+fastrp-4-s0"
    worked(capsys, "embed", payments / "run", "-o", payments / "z.npy")
    said = json.loads(worked(capsys, "train", graph, "--dry-run", "--json", *options, *assignments(**made)))
    metrics = json.loads((payments / "run" / "metrics.json").read_text())
    assert said["parameters"] == metrics["parameters"]


def test_a_graph_that_went_away_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = train(capsys, saved_graph(tmp_path / "g"), tmp_path / "run", epochs=1)
    (tmp_path / "g").rename(tmp_path / "moved")
    assert f"{tmp_path / 'g'} does not exist" in refused(capsys, "predict", run, "-o", tmp_path / "out.csv")
    worked(capsys, "predict", run, "--graph", tmp_path / "moved", "-o", tmp_path / "out.csv")
