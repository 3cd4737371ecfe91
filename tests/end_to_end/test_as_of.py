"""Whatever happens after a date changes no output as of that date, through import, features, model and smoothing."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronospike.data.as_of import step_as_of
from chronospike.data.graph import DynamicGraph
from chronospike.data.ingest import import_graph
from chronospike.errors import InputError
from chronospike.estimator import ChronoSpikeClassifier
from tests.small_runs import assignments, worked

# `CHRONOSPIKE_EXAMPLES=1000 pytest tests/end_to_end/test_as_of.py` for a thorough run.
EXAMPLES = int(os.environ.get("CHRONOSPIKE_EXAMPLES", "40"))
TINY: dict[str, Any] = {
    "hidden": (4, 4), "heads": 2, "temporal_heads": 2, "feedforward": 4, "fanouts": (2, 2), "epochs": 1, "samples": 2,
    "preset": None, "device": "cpu", "feature_method": "fastrp", "feature_dimension": 3, "learning_rate": 0.05,
    "weight_average": 0.0, "validation": 0.3, "sequence_channels": 4, "head": 4,
}  # fmt: skip
BEGIN = datetime(2020, 1, 15, 7, 30)
RING = 8
Event = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """Events up to a day, two versions of what came later, and how they are imported and used."""

    past: list[Event]
    futures: tuple[list[Event], list[Event]]
    day: int
    ids: str
    steps: dict[str, Any]
    is_date: bool
    directed: bool
    values: dict[str, Any]
    smooth: bool

    def graph(self, future: list[Event]) -> DynamicGraph:
        source, target, day = zip(*self.past, *future, strict=True)
        times: Any = [self.time(value) for value in day]
        ends = [[self.name(node) for node in nodes] for nodes in (source, target)]
        labels = {self.name(node): "ab"[node % 2] for node in range(RING)}
        graph = import_graph((*ends, times), labels=labels, directed=self.directed, **self.steps)
        # Attributes of the nodes that are there, whoever they are: known by id.
        ids = list(graph.ids)
        attributes = {"node": ids, "size": [len(str(i)) + hash_of(i) for i in ids], "kind": [str(i)[-1] for i in ids]}
        return graph if self.values["features"] == "fastrp" else with_attributes(graph, attributes)

    def name(self, node: int) -> str | int:
        """Whole numbers, text, or numbers among which a name may turn up."""
        number = node * 7919 % 101
        return f"n{number:03d}" if self.ids == "text" or (self.ids == "mixed" and node > 15) else number

    def time(self, day: int) -> Any:
        return BEGIN + timedelta(days=day) if self.is_date else float(day)


def hash_of(value: str | int) -> float:
    return sum(str(value).encode()) % 17 / 3


def with_attributes(graph: DynamicGraph, table: dict[str, Any]) -> DynamicGraph:
    from chronospike.data.reading.attributes import read_features

    values, columns, _ = read_features(table, graph)
    return graph.with_features(values, columns)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    day = draw(st.integers(10, 40))
    node = st.integers(0, 19)

    def events(low: int, high: int, most: int) -> st.SearchStrategy[list[Event]]:
        edge = st.tuples(node, node, st.integers(low, high))
        return st.lists(edge.filter(lambda e: e[0] != e[1]), max_size=most)

    # A ring of the labelled nodes at the start, so that there is something to learn from.
    ring = [(v, (v + 1) % RING, v % 3) for v in range(RING)]
    is_date = draw(st.booleans())
    rules: list[dict[str, Any]] = [{}, {"every": "7d"}, {"every": "1mo"}, {"every": "10d", "origin": "2019-12-31"}]
    numeric: list[dict[str, Any]] = [{}, {"every": 5}, {"every": 2.5}, {"every": 7, "origin": -2}]
    values = {
        "features": draw(st.sampled_from(["own", "fastrp", "own+fastrp", "own+activity"])),
        "history": draw(st.sampled_from(["strict", "inclusive"])),
        "label_inputs": draw(st.booleans()),
        **{name: draw(st.booleans()) for name in ("label_sequences", "label_features", "activity")},
        **draw(st.sampled_from(([{}] * 3) + [{"folds": 2, "second_stage": "logistic", "calibrate": True}])),
        "refit": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
    }
    return Case(
        past=ring + draw(events(0, day, 25)),
        futures=(draw(events(day + 1, 60, 15)), draw(events(day + 1, 60, 15))),
        day=day,
        ids=draw(st.sampled_from(["numbers", "text", "mixed"])),
        steps=draw(st.sampled_from(rules if is_date else numeric)),
        is_date=is_date,
        directed=draw(st.booleans()),
        values=values,
        smooth=draw(st.booleans()),
    )


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_nothing_after_a_date_changes_what_was_so_by_then(case: Case) -> None:
    one, other = (case.graph(future) for future in case.futures)
    moment = case.time(case.day)
    try:
        step = step_as_of(one, moment)
    except InputError:
        with pytest.raises(InputError, match="no step had ended by then"):
            step_as_of(other, moment)
        return
    assert step_as_of(other, moment) == step
    model = ChronoSpikeClassifier(**{**TINY, **case.values}).fit(one)
    shared = [name for name in one.ids if other.ids.lookup([name])[0] >= 0]
    seen = one.seen_by(step)[one.ids.lookup(shared)]
    assert np.array_equal(seen, other.seen_by(step)[other.ids.lookup(shared)])
    for found in (
        [model.embed(graph, ids=shared, as_of=moment) for graph in (one, other)],
        [model.predict_proba(graph, ids=shared, as_of=moment) for graph in (one, other)],
        smoothed(model, (one, other), shared, moment) if case.smooth else [],
    ):
        if found:
            np.testing.assert_array_equal(found[0], found[1])


def smoothed(model: ChronoSpikeClassifier, graphs: Any, ids: list[Any], moment: Any) -> list[Any]:
    """Nothing where too few labelled nodes had been seen by then, which is so in both graphs or in neither."""
    results, refusals = [], 0
    for graph in graphs:
        try:
            results.append(model.predict_proba(graph, ids=ids, as_of=moment, smooth=True))
        except InputError:
            refusals += 1
    assert refusals in (0, 2)
    return results


def written(path: Path, events: list[tuple[str, str, str]]) -> Path:
    path.write_text("source,target,time\n" + "".join(",".join(event) + "\n" for event in events), encoding="utf-8")
    return path


def rows_by_node(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return {row["node"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("more", [[], ["--smooth"]])
def test_on_the_command_line_as_of_a_date_is_blind_to_what_came_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    rng = np.random.default_rng(0)
    days = np.sort(rng.integers(0, 300, 400))
    events = [
        (f"u{a:02d}", f"u{b:02d}", str((BEGIN + timedelta(days=int(day))).date()))
        for day, a, b in zip(days, rng.integers(0, 30, 400), rng.integers(0, 30, 400), strict=True)
    ]
    past = [event for event in events if event[2] <= "2020-06-10"]
    later = [("a-new-one", a, time) for a, _, time in events if time > "2020-06-10"] + [("u00", "zz", "2021-03-01")]
    (tmp_path / "labels.csv").write_text(
        "node,label\n" + "".join(f"u{k:02d},{'xy'[k % 2]}\n" for k in range(30)), encoding="utf-8"
    )
    for name, rows in (("one", events), ("other", past + later)):
        edges = written(tmp_path / f"{name}.csv", rows)
        labels = ("--labels", tmp_path / "labels.csv", "--on-unknown", "drop")
        worked(capsys, "data", "import", edges, *labels, "--every", "1mo", "-o", tmp_path / name)
    made = {"feature_method": "fastrp", "feature_dimension": 8, "validation": 0.2, "ratio": 0.7}
    worked(capsys, "train", tmp_path / "one", "-o", tmp_path / "run", "--device", "cpu", *assignments(**made))
    found = []
    for name in ("one", "other"):
        out = tmp_path / f"{name}-predictions.csv"
        said = worked(
            capsys, "predict", tmp_path / "run", "--graph", tmp_path / name, "--as-of", "2020-06-10", "-o", out, *more
        )
        # May had ended by then, June had not.
        assert "2020-06-01" in said
        found.append(rows_by_node(out))
    one, other = found
    shared = one.keys() & other.keys()
    assert len(shared) == 30
    for node in shared:
        assert one[node] == other[node]
    assert other["a-new-one"]["seen"] == "false"
    assert {row["seen"] for row in one.values()} <= {"true", "false"}
