"""A user's own file goes in with one command, and their ids come back out unchanged."""

from __future__ import annotations

import csv
import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from chronospike.data.storage import open_graph
from tests.small_runs import train, worked

NODES = 40


def names() -> list[str]:
    """Leading zeros, commas, quotes, blanks and letters beyond ASCII; no two alike."""
    kinds = ("{:04d}", "{:d}", "Smith, J. {}", 'the "{}"', "Zoë {}", " {} ", "{}.0", "+{}")
    return [kinds[v % len(kinds)].format(v) for v in range(NODES)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Edges with a header and ISO dates; labels of some of the nodes, and rows whose label is missing."""
    rng = np.random.default_rng(0)
    ids = names()
    edges, labels = tmp_path / "my edges.csv", tmp_path / "labels.csv"
    with edges.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "weight", "source", "target"])
        for number in range(400):
            u = number % NODES
            v = (u + 2 * int(rng.integers(1, NODES // 2))) % NODES
            day = date(2021, 1, 1) + timedelta(days=int(rng.integers(0, 6)))
            writer.writerow([day.isoformat(), "1.5", ids[u], ids[v]])
    with labels.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["node", "label"])
        for v in range(NODES):
            writer.writerow([ids[v], "" if v % 5 == 4 else ("even, really", "odd")[v % 2]])
    return edges, labels


def test_ids_come_back_unchanged(capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[Path, Path]) -> None:
    edges, labels = files
    worked(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "graph")
    found = json.loads(worked(capsys, "data", "info", tmp_path / "graph", "--json"))
    assert (found["nodes"], found["steps"], found["classes"], found["rows"]) == (NODES, 6, 2, 400)
    assert (found["labelled"], found["class_sizes"]) == (32, {"even, really": 16, "odd": 16})
    assert (found["first_time"], found["last_time"]) == ("2021-01-01", "2021-01-06")
    assert sorted(open_graph(tmp_path / "graph").ids, key=str) == sorted(names())

    features = {"feature_method": "fastrp", "feature_dimension": 8}
    train(capsys, tmp_path / "graph", tmp_path / "run", epochs=1, **features)
    with (tmp_path / "run" / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["node"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(names())
    for v, name in enumerate(names()):
        row = rows[name]
        assert row["label"] == ("" if v % 5 == 4 else ("even, really", "odd")[v % 2])
        assert row["class"] in ("even, really", "odd")
        chances = float(row["probability even, really"]), float(row["probability odd"])
        assert sum(chances) == pytest.approx(1, abs=2e-6)
        assert (row["class"] == "odd") == (chances[1] > chances[0])


def test_predictions_can_be_asked_for_by_those_ids(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[Path, Path]
) -> None:
    edges, labels = files
    worked(capsys, "data", "import", edges, "--labels", labels, "-o", tmp_path / "graph", "--every", "2d")
    run = train(capsys, tmp_path / "graph", tmp_path / "run", epochs=1, feature_method="fastrp", feature_dimension=8)
    (tmp_path / "nodes.txt").write_text("\n".join(names()[:10]), encoding="utf-8")
    options = ("--nodes", tmp_path / "nodes.txt", "--as-of", "2021-01-04")
    worked(capsys, "predict", run, *options, "-o", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        assert [row["node"] for row in csv.DictReader(file)] == names()[:10]
