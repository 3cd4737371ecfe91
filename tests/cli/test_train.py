from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chronospike.data.ingest import import_graph
from chronospike.data.storage import save_graph
from chronospike.files import LOCK
from tests.lock_holder import CLAIM, started
from tests.small_runs import (
    assignments,
    begin,
    command,
    contents,
    refused,
    saved_graph,
    small_graph,
    train,
    worked,
)


def test_a_run_is_a_folder_with_all_it_promises(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    said = worked(capsys, *begin(graph, tmp_path / "run", "--seed", "3", "--ratio", "0.6"))
    assert set(contents(tmp_path / "run")) == {
        "config.yaml", "run.json", "metrics.jsonl", "metrics.json", "model.safetensors", "predictions.csv",
        "report.html", "checkpoint/state.safetensors", "checkpoint/refit.safetensors", "labels.parquet",
        "attributes.json", "label_features.safetensors",
    }  # fmt: skip
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["seed"], metrics["split"]["ratio"]) == (3, 0.6)
    assert "seed 3" in said
    for name in ("majority class", "label propagation", "ChronoSpike"):
        assert name in said


def test_json_is_all_that_is_printed_when_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bare = saved_graph(tmp_path / "g", features=None)
    made = {"feature_method": "fastrp", "feature_dimension": 8}
    said = json.loads(worked(capsys, *begin(bare, tmp_path / "run", "--json", **made)))
    assert said == json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["features"] == "fastrp-8-s0"


def test_smoothing_is_said_in_the_output(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    said = worked(capsys, *begin(graph, tmp_path / "run", "--smooth"))
    assert "training labels used at test time" in said


def test_a_preset_gives_way_to_settings(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 1\np: 0.25\n")
    train(capsys, graph, tmp_path / "run", "--preset", tmp_path / "mine.yaml", epochs=2)
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "epochs: 2" in config
    assert "p: 0.25" in config


def test_two_runs_of_one_seed_are_the_same_and_two_seeds_differ(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    runs = [train(capsys, graph, tmp_path / f"run{i}", "--seed", seed) for i, seed in enumerate(("5", "5", "6"))]
    first, again, other = ((run / "model.safetensors").read_bytes() for run in runs)
    assert first == again
    assert first != other
    assert (runs[0] / "predictions.csv").read_bytes() == (runs[1] / "predictions.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "epoch=3"], "no setting 'epoch' for chronospike. Did you mean 'epochs'?"),
        (["--set", "p=2"], "setting 'p' is 2: it must be 0 <= p <= 1"),
        (["--set", "hidden=[]"], "setting 'hidden' is []"),
        (["--set", "epochs"], "--set wants key=value, not 'epochs'"),
        (["--set", "p=!!python/object/apply:os.getcwd []"], "the value cannot be read"),
        (["--ratio", "1.5"], "setting 'ratio' is 1.5: it must be 0 < ratio < 1"),
        (["--seed", "-1"], "setting 'seed' is -1: it must be 0 <= seed"),
        (["--set", "split_seed=-1"], "setting 'split_seed' is -1: it must be 0 <= split_seed < 4294967296"),
        (["--preset", "dblb"], "no preset 'dblb'. Did you mean 'dblp'?"),
        (["--preset", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["--device", "gpu"], "device 'gpu' is not known"),
        (["--set", "features=mine"], "has no feature set 'mine' (there: none)"),
        (["--epochs", "3", "--set", "epochs=4"], "--epochs 3 and --set epochs=4 contradict each other"),
        (["--ratio", "nan"], "setting 'ratio' is nan"),
        (["--seed", "3", "--set", "seed=4"], "--seed 3 and --set seed=4 contradict each other"),
        (["--epochs", "0"], "setting 'epochs' is 0: it must be 1 <= epochs"),
        (["--seeds", "0"], "'--seeds'"),
        (["--resume"], "run does not exist"),
        (["--resume", "--overwrite"], "choose one"),
    ],
)
def test_bad_settings_are_one_line_and_no_folder(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert message in refused(capsys, "train", graph, "-o", tmp_path / "run", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_no_gpu_where_one_was_asked_for_says_how_to_run_on_the_cpu(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = refused(capsys, "train", graph, "-o", tmp_path / "run", "--device", "cuda")
    assert "there is no GPU that torch can use here. Run with --device cpu" in said
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_is_not_there_gets_the_nearest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "Did you mean 'pubmed'?" in refused(capsys, "train", "pubmet", "-o", tmp_path / "run")
    assert "which graph?" in refused(capsys, "train", "-o", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def unlabelled(folder: Path) -> Path:
    return saved_graph(folder, labels=None, class_names=())


def one_class(folder: Path) -> Path:
    """Two class names, of which one has nodes."""
    return saved_graph(folder, labels=np.zeros(120, dtype=np.int64), features=None)


def few_labels(folder: Path) -> Path:
    labels = np.full(120, -1)
    labels[:2] = [0, 1]
    return saved_graph(folder, labels=labels, features=None)


def one_step(folder: Path) -> Path:
    labels = {v: v % 2 for v in range(6)}
    return save_graph(import_graph(([0, 1, 2, 3], [1, 2, 4, 5], [7, 7, 7, 7]), labels=labels), folder)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (unlabelled, "the graph has no labels. Import it with --labels FILE"),
        (one_class, "the labelled nodes have 1 class, and 2 are needed"),
        (few_labels, "2 labelled nodes at ratio 0.8"),
        (one_step, "the graph has 1 step, and 2 are needed"),
    ],
)
def test_a_graph_that_cannot_be_trained_on_is_one_line_and_leaves_no_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Any, message: str
) -> None:
    folder = make(tmp_path / "g")
    before = contents(tmp_path)
    assert message in refused(capsys, "train", folder, "-o", tmp_path / "run")
    # Not even features were made: they can take long.
    assert contents(tmp_path) == before


def test_the_static_ablation_needs_one_step_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, target = np.arange(40), (np.arange(40) + 2) % 40
    labels = {v: v % 2 for v in range(40)}
    features = np.eye(40, dtype=np.float32)
    folder = save_graph(import_graph((source, target, np.ones(40)), labels=labels, features=features), tmp_path / "g")
    train(capsys, folder, tmp_path / "run", static="true", epochs=1)


def test_a_damaged_graph_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = saved_graph(tmp_path / "g")
    content = bytearray((folder / "features.npy").read_bytes())
    content[-2] ^= 1
    (folder / "features.npy").write_bytes(content)
    assert "features.npy has a wrong checksum" in refused(capsys, *begin(folder, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_options_are_short_for_settings(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    options = ["--epochs", "1", "--features", "own", "--set", "epochs=1", "--set", "hidden=[8, 8]"]
    worked(capsys, "train", graph, "-o", tmp_path / "run", "--device", "cpu", *options)
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "epochs: 1\n" in config
    assert "features: own\n" in config


def test_overwriting_replaces_a_run(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    train(capsys, graph, tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "state.safetensors").write_text("of another run")
    train(capsys, graph, tmp_path / "run", "--overwrite", epochs=1)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1


def test_a_folder_of_something_else_is_never_overwritten(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    said = refused(capsys, *begin(graph, tmp_path, "--overwrite"))
    assert "holds something else" in said
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    said = json.loads(worked(capsys, *begin(graph, tmp_path / "run", "--dry-run", "--json")))
    again = json.loads(worked(capsys, "train", graph, *assignments(), "--dry-run", "--json"))
    assert [again[key] for key in ("parameters", "train", "batches")] == [
        said[key] for key in ("parameters", "train", "batches")
    ]
    train(capsys, graph, tmp_path / "real", epochs=1)
    assert said["parameters"] == json.loads((tmp_path / "real" / "metrics.json").read_text())["parameters"]
    assert not (tmp_path / "run").exists()


def test_a_run_needs_a_folder(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    for more in ([], ["--dry-run", "--resume"]):
        said = command(capsys, "train", graph, *more)
        assert said.code == 2
        assert "which run folder? Give it with -o" in said.err
        assert said.err.count("\n") == 1


def test_a_named_dataset_is_trained_from_the_cache(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHRONOSPIKE_CACHE", str(tmp_path / "cache"))
    save_graph(small_graph(), tmp_path / "cache" / "graphs" / "synthetic")
    train(capsys, Path("synthetic"), tmp_path / "run", epochs=1)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["graph"], facts["preset"]) == ("synthetic", "default")
    assert facts["folder"] == str(tmp_path / "cache" / "graphs" / "synthetic")


@pytest.mark.parametrize("values", [{"fanouts": [100_000, 100_000]}, {"hidden": [1_000_000, 1_000_000]}])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_run_that_fits_no_machine_is_refused_before_it_begins(
    values: dict[str, Any], more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = saved_graph(tmp_path / "g")
    assert "this run needs about" in refused(capsys, *begin(graph, tmp_path / "run", *more, **values))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_another_process_trains_in_is_refused(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    with started(CLAIM, tmp_path / "run") as other:
        said = refused(capsys, *begin(graph, tmp_path / "run"))
    assert f"{tmp_path / 'run'} is in use by process {other.pid} (since " in said
    assert "Wait for it or choose another folder" in said


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
def test_a_run_that_is_being_trained_is_neither_resumed_nor_replaced(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path, how: str
) -> None:
    run = train(capsys, graph, tmp_path / "run")
    before = contents(run)
    with started(CLAIM, run) as other:
        said = refused(capsys, *begin(graph, run, how))
    assert f"in use by process {other.pid} " in said
    (run / LOCK).unlink()
    assert contents(run) == before


def test_a_folder_with_the_lock_of_a_killed_process_is_an_empty_one(
    capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).write_text("1 elsewhere 2026-01-31 12:00:00\n")
    train(capsys, graph, tmp_path / "run")
    assert not (tmp_path / "run" / LOCK).exists()


def test_what_a_damaged_feature_set_says_mends_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bare = saved_graph(tmp_path / "a graph", features=None)
    made = {"feature_method": "fastrp", "feature_dimension": 8}
    train(capsys, bare, tmp_path / "first", **made)
    values = bare / "features" / "fastrp-8-s0" / "values.npy"
    content = bytearray(values.read_bytes())
    content[-1] ^= 1
    values.write_bytes(content)
    result = command(capsys, *begin(bare, tmp_path / "second", **made))
    assert result.code == 2
    advice = re.search(r"Remove it with: (.*?)\. Training", result.err)
    assert advice is not None
    subprocess.run(shlex.split(advice[1]), check=True)
    train(capsys, bare, tmp_path / "second", **made)


def test_a_split_of_ones_own_is_kept(capsys: pytest.CaptureFixture[str], graph: Path, tmp_path: Path) -> None:
    parts = {node: ("train", "validation", "test")[node % 3] for node in range(60)}
    text = "node,split\n" + "".join(f"{node},{part}\n" for node, part in parts.items())
    (tmp_path / "split.csv").write_text(text, encoding="utf-8")
    run = train(capsys, graph, tmp_path / "run", "--split", tmp_path / "split.csv")
    metrics = json.loads((run / "metrics.json").read_text())
    assert [metrics["split"][part] for part in ("train", "validation", "test")] == [20, 20, 20]
    with (run / "predictions.csv").open() as file:
        found = {int(row["node"]): row["split"] for row in csv.DictReader(file)}
    assert found == {node: parts.get(node, "") for node in range(120)}
    assert json.loads(worked(capsys, "evaluate", run, "--json"))["test"] == metrics["test"]
    said = refused(capsys, "train", "--resume", "-o", run, "--split", tmp_path / "split.csv")
    assert "--resume keeps the split of the run" in said
