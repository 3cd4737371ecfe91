from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chronospike.analysis.report import graph_facts, write_report
from chronospike.errors import StorageError
from tests.analysis.conftest import MakeRun
from tests.analysis.pages import NASTY, Page


def _read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def _bare_run(folder: Path) -> Path:
    part = {"macro_f1": 0.5, "micro_f1": 0.5}
    (folder / "metrics.json").write_text(json.dumps({"test": part, "validation": part}))
    return folder


def test_the_report_is_one_file_in_the_run_folder(make_run: MakeRun) -> None:
    run = make_run()
    before = set(run.iterdir())
    assert write_report(run) == run / "report.html"
    assert set(run.iterdir()) - before == {run / "report.html"}


def test_the_last_event_stands_beside_the_end_of_the_last_step() -> None:
    graph = {"steps": 19, "first_time": "2022-01-03", "last_time": "2023-07-27", "last_event": "2023-07-20 11:02"}
    assert graph_facts(graph)[1:] == ["from 2022-01-03 to 2023-07-27 (last event 2023-07-20 11:02)"]


def test_the_page_says_what_the_run_achieved(make_run: MakeRun) -> None:
    text = _read(write_report(make_run())).text
    for words in (
        "pets · ChronoSpike report",
        "80.0 % of the 10 held-out nodes are classified correctly",
        "40 nodes · 99 distinct edges · 2 time steps · 2 classes",
        "Test Micro-F1 80.0 %",
        "Validation Macro-F1 74.0 %",
        "Label propagation 50.0 % 40.0 %",
        "ChronoSpike, smoothed 90.0 % 88.0 %",
        "cats 0.83 0.83 0.83 6",
        "cats taken for dogs : 1 node, 16.7 % of the class",
        "3 (best: 1)",
        "best epoch: 1",
        "chronospike 0.1.0 · torch 2.6.0",
        "chronospike train pets --preset config.yaml -o ../again",
    ):
        assert words in text


def test_validation_nodes_of_which_none_was_scored_have_no_scores_on_the_page(make_run: MakeRun) -> None:
    page = _read(write_report(make_run(validation={"macro_f1": 0.0, "micro_f1": 0.0, "nodes": 0})))
    assert "Test Micro-F1 80.0 %" in page.text
    assert "Validation Micro-F1" not in page.text


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ("selection: macro_f1", "the epoch with the best validation Macro-F1"),
        ("selection: micro_f1", "the epoch with the best validation Micro-F1"),
        ("selection: reconstruction", "the epoch with the best reconstruction of the edges"),
        ("selection: last", "the last epoch"),
        ("method: htne", "the last epoch"),
    ],
)
def test_it_is_said_which_weights_are_kept(make_run: MakeRun, config: str, kept: str) -> None:
    assert f"The weights of {kept} are kept." in _read(write_report(make_run(config))).text


def test_every_tag_is_closed_in_order(make_run: MakeRun) -> None:
    assert _read(write_report(make_run())).open == []


def test_nothing_is_fetched_and_nothing_runs(make_run: MakeRun) -> None:
    path = write_report(make_run())
    assert not re.search(r"https?:|url\(|@import|<script|\son\w+=", path.read_text(encoding="utf-8"))
    for tag, attributes in _read(path).tags:
        assert "src" not in attributes, tag
        assert attributes.get("href", "data:,") == "data:,"


def test_class_names_settings_and_notes_cannot_bring_markup(make_run: MakeRun, metrics: dict[str, Any]) -> None:
    run = make_run(
        config=json.dumps({"features": NASTY, NASTY: 1}),
        classes=[NASTY, "dogs"],
        test={**metrics["test"], "per_class_f1": {NASTY: 0.1, "dogs": 0.75}},
        graph={"name": NASTY},
        split={"notes": [NASTY]},
        baselines={NASTY: {"macro_f1": 0.5, "micro_f1": 0.5}},
        versions={NASTY: NASTY},
        device=NASTY,
    )
    path = write_report(run)
    assert "<script" not in path.read_text(encoding="utf-8")
    page = _read(path)
    assert page.open == []
    assert page.text.count(NASTY) >= 8


def _wrong(node: Any) -> dict[str, Any]:
    return {"node": node, "class": "cats", "predicted": "dogs", "probability": 0.987}


def test_confidently_wrong_nodes_are_listed_with_their_ids(make_run: MakeRun) -> None:
    page = _read(write_report(make_run(confidently_wrong=[_wrong(12), _wrong("user-7")])))
    assert "Node True class Predicted Probability 12 cats dogs 98.7 % user-7 cats dogs 98.7 %" in page.text


def test_hostile_ids_are_shown_and_do_nothing(make_run: MakeRun) -> None:
    ids = [NASTY, "u" * 5000, "\u202egnp.exe", '" onmouseover="alert(1)']
    path = write_report(make_run(confidently_wrong=[_wrong(node) for node in ids]))
    page = _read(path)
    assert "<script" not in path.read_text(encoding="utf-8")
    assert page.open == []
    assert not [tag for tag, attributes in page.tags if "onmouseover" in attributes]
    for words in (NASTY, "u" * 59 + "…", "⟨U+202E⟩gnp.exe"):
        assert words in page.text
    assert "u" * 60 not in page.text
    assert [attributes["title"] for tag, attributes in page.tags if tag == "bdi" and "title" in attributes] == [ids[1]]


def test_predictions_of_unlabelled_nodes_stand_beside_the_training_labels(make_run: MakeRun) -> None:
    unlabelled = {"nodes": 1200, "predicted": {"cats": 300, "dogs": 900}, "training": {"cats": 30, "dogs": 30}}
    page = _read(write_report(make_run(unlabelled=unlabelled)))
    assert "Class Nodes Predicted Training labels dogs 900 75.0 % 50.0 % cats 300 25.0 % 50.0 %" in page.text


def test_what_scrolls_can_be_reached_by_keyboard_and_has_a_name(make_run: MakeRun) -> None:
    unlabelled = {"predicted": {"cats": 3}, "training": {"cats": 3}}
    page = _read(write_report(make_run(confidently_wrong=[_wrong(1)], unlabelled=unlabelled)))
    frames = [attributes for _, attributes in page.tags if attributes.get("class") == "scroll"]
    assert len(frames) == 5
    assert all(frame.get("tabindex") == "0" and frame.get("role") == "region" for frame in frames)
    assert len({frame.get("aria-label") for frame in frames}) == 5


def test_every_drawing_is_labelled_or_hidden_from_screen_readers(make_run: MakeRun) -> None:
    drawings = [attributes for tag, attributes in _read(write_report(make_run())).tags if tag == "svg"]
    assert len(drawings) > 4
    assert all(attributes.get("aria-label") or attributes.get("aria-hidden") == "true" for attributes in drawings)


def test_scores_alone_make_a_page_without_empty_parts(tmp_path: Path) -> None:
    page = _read(write_report(_bare_run(tmp_path)))
    headings = [attributes["id"] for tag, attributes in page.tags if tag == "h2"]
    assert headings == ["scores", "trust"]
    assert "None" not in page.text


@pytest.mark.parametrize(
    ("missing", "heading"),
    [({"baselines": {}, "smoothed": None}, "beside"), ({"firing_rate": [], "firing_rate_per_step": []}, "firing")],
)
def test_a_part_without_numbers_is_left_out(make_run: MakeRun, missing: dict[str, Any], heading: str) -> None:
    page = _read(write_report(make_run(**missing)))
    assert heading not in [attributes["id"] for tag, attributes in page.tags if tag == "h2"]


def test_settings_that_are_not_the_default_are_marked(make_run: MakeRun) -> None:
    page = write_report(make_run(config="fanouts: [10, 5]\np: 0.5\n")).read_text(encoding="utf-8")
    marked = re.findall(r'<div class="changed"[^>]*><dt>(\w+)</dt><dd>([^<]*)</dd>', page)
    assert marked == [("fanouts", "[10, 5]")]
    assert "<dt>p</dt><dd>0.5</dd>" in page


def test_the_command_of_the_run_is_preferred_where_it_was_kept(make_run: MakeRun) -> None:
    text = _read(write_report(make_run(command="chronospike train my-graph --seed 3"))).text
    assert "chronospike train my-graph --seed 3" in text
    assert "--preset config.yaml" not in text


def test_a_loss_without_a_contrastive_part_is_one_line(make_run: MakeRun) -> None:
    run = make_run()
    (run / "metrics.jsonl").write_text('{"epoch": 0, "loss": 2.0, "classification_loss": 2.0}\n')
    assert "classification part" not in _read(write_report(run)).text


def test_a_report_written_twice_is_the_same(make_run: MakeRun) -> None:
    run = make_run()
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


def test_a_damaged_run_leaves_the_old_report_alone(make_run: MakeRun) -> None:
    run = make_run()
    first = write_report(run).read_bytes()
    (run / "metrics.json").write_text("{")
    with pytest.raises(StorageError, match="metrics.json is damaged"):
        write_report(run)
    assert (run / "report.html").read_bytes() == first


def _headings(page: Page) -> list[str | None]:
    return [attributes["id"] for tag, attributes in page.tags if tag == "h2"]


def test_parts_stand_beside_the_simple_methods_and_the_chosen_one_is_marked(
    make_run: MakeRun, built: dict[str, Any]
) -> None:
    page = _read(write_report(make_run(**{**built, "smoothed": None})))
    assert "parts" in _headings(page)
    # The simple methods stand in the same table.
    assert "beside" not in _headings(page)
    for words in (
        "One network (mean of 5) 70.0 % 69.0 % 71.0 % 70.0 %",
        "Second stage: logistic regression chosen 78.0 % 77.0 % 80.0 % 79.0 %",
        "Simple methods Majority class 51.0 % 31.0 % 50.0 % 30.0 % Label propagation – – 50.0 % 40.0 %",
        "Held-out scores are out-of-fold",
        "test scores are not used for any choice",
        "Cross-validation over 22,468 labelled nodes in 5 folds expects a Micro-F1 of 78.0 % ± 0.3 points.",
    ):
        assert words in page.text
    assert page.text.count("chosen 78.0 %") == 1
    assert page.open == []


def test_probabilities_have_a_chart_a_sentence_and_a_table(make_run: MakeRun, built: dict[str, Any]) -> None:
    page = _read(write_report(make_run(**built)))
    assert "probabilities" in _headings(page)
    for words in (
        "off by 2.1 points on average (expected calibration error); before calibration by 8.3 points.",
        "A temperature of 1.37, chosen on 22,468 out-of-fold predictions, makes them less confident",
        "50 % 100.0 % 80.0 % 90 % 71.0 % 93.0 % 99 % 0.0 % –",
        "below 90 % are left out, 71.0 % of the nodes are kept, with a Micro-F1 of 93.0 %.",
    ):
        assert words in page.text
    labels = [attributes.get("aria-label") or "" for tag, attributes in page.tags if tag == "svg"]
    assert [
        label for label in labels if "96\N{NO-BREAK SPACE}% correct where 97\N{NO-BREAK SPACE}% was predicted" in label
    ]


@pytest.mark.parametrize("missing", [None, {}])
def test_without_a_calibration_nothing_is_said_of_the_probabilities(make_run: MakeRun, missing: Any) -> None:
    assert "probabilities" not in _headings(_read(write_report(make_run(calibration=missing))))


@pytest.mark.parametrize("key", ["temperature", "ece_before", "ece_after", "reliability", "abstention", "chosen_on"])
def test_a_calibration_without_one_of_its_keys_makes_a_page(make_run: MakeRun, built: dict[str, Any], key: str) -> None:
    page = _read(write_report(make_run(calibration={**built["calibration"], key: None})))
    assert "probabilities" in _headings(page)
    assert "None" not in page.text
    assert page.open == []


def test_titles_of_parts_cannot_bring_markup(make_run: MakeRun) -> None:
    part = {"name": NASTY, "title": NASTY, "chosen": True, "test": {"macro_f1": 0.5, "micro_f1": 0.5}}
    path = write_report(make_run(parts=[part, {"name": "x" * 5000}]))
    assert "<script" not in path.read_text(encoding="utf-8")
    page = _read(path)
    assert page.open == []
    assert NASTY in page.text
    assert "x" * 60 not in page.text
