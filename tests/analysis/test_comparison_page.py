from __future__ import annotations

from pathlib import Path
from typing import Any

from chronospike.analysis.comparison_page import headline, render, write_page
from chronospike.experiments.comparison import summarise
from tests.analysis.pages import GAP, NASTY, Page
from tests.experiments.small_grids import done


def _facts(*variants: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "summary": {"nodes": 40, "steps": 2, "classes": 2},
        "features": ["deepwalk"],
        "preset": "default",
        "command": "chronospike compare mine -o c",
        "machine": {"processor": "Abacus", "cpus": 2, "memory_bytes": 24e9, "system": "Linux 6"},
        "versions": {"chronospike": "0.1.0"},
        "variants": [
            {"name": name, "title": name.upper(), "resolved": {"rounds": 9, "alpha": 0.5}, "changed": ["rounds"]}
            for name in variants
        ],
        **changes,
    }


RESULTS = [
    done("chronospike", 0.8, 0, 0.8, seconds=3.0, seconds_per_epoch=0.5, parameters=1234, peak_memory_bytes=5e8),
    done("chronospike", 0.8, 1, 0.82),
    done("logistic", 0.8, 0, 0.7),
    {"variant": "logistic", "method": "logistic", "ratio": 0.8, "seed": 1, "status": "time", "reason": "too slow"},
]


def _page(results: list[dict[str, Any]] = RESULTS, dataset: str | None = "dblp", **changes: Any) -> Page:
    names = dict.fromkeys(one["variant"] for one in results)
    return Page(render(_facts(*names, **changes), results, summarise(results, dataset)))


def test_the_page_says_what_came_out() -> None:
    text = _page().text
    for words in (
        "mine · ChronoSpike comparison",
        "With 80 % of the labels known, the best Macro-F1 is 81.0 % (CHRONOSPIKE)",
        "3 of 4 cells are done.",
        "40 nodes · 2 time steps · 2 classes",
        "CHRONOSPIKE 81.00 ± 1.41 the paper (difference) 79.13 (+1.87) LOGISTIC 70.00 (1 of 2)",
        "Too few pairs that differ for a test: Macro-F1 at 80 % (n = 1)",
        "CHRONOSPIKE 1,234 0.5 3 500 MB cpu",
        "LOGISTIC 80 % 1 time too slow",
        "chronospike compare mine -o c",
        "Abacus · 2 CPUs · 24 GB memory · Linux 6 · features deepwalk · preset default",
        "rounds 9 alpha 0.5",
    ):
        assert words in text


def test_the_page_shows_the_places_where_the_paper_has_two_methods() -> None:
    text = _page([done("tgat", 0.8, 0, 0.7), done("htne", 0.8, 0, 0.8)]).text
    assert "TGAT 2 (1) 2 (1) HTNE 1 (2) 1 (2)" in text
    assert "of 2 methods: -1.00 at 80 %." in text
    assert "Is the order that of the paper?" not in _page().text


def test_the_best_is_bold_and_the_second_underlined() -> None:
    results = [done(name, 0.8, 0, score) for name, score in (("a", 0.5), ("b", 0.7), ("c", 0.6))]
    page = render(_facts("a", "b", "c"), results, summarise(results))
    assert "<b>70.00</b>" in page
    assert "<u>60.00</u>" in page


def test_nothing_is_fetched_or_run() -> None:
    page = _page()
    assert not {"script", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert [values["href"] for tag, values in page.tags if tag == "link"] == ["data:,"]


def test_hostile_names_are_only_text() -> None:
    results = [
        {**done(NASTY, 0.8, 0, 0.8), "method": "logistic"},
        {**done("b", 0.8, 0, 0.7), "device": NASTY},
        {"variant": "b", "method": "b", "ratio": 0.8, "seed": 1, "status": "failed", "reason": NASTY},
    ]
    page = _page(results, name=NASTY, command=NASTY, features=[NASTY])
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(NASTY) >= 5
    assert page.open == []


def test_a_grid_that_has_just_begun_has_a_page() -> None:
    results = [{"variant": "a", "method": "a", "ratio": 0.8, "seed": 0}]
    assert "0 of 1 cell are done." in headline(results, summarise(results), {"a": "A"}).replace(GAP, " ")
    assert "A –" in _page(results).text


def test_a_share_of_the_labels_that_is_not_whole_keeps_its_decimal() -> None:
    text = _page([done("a", 0.625, 0, 0.8), done("b", 0.625, 0, 0.7)]).text
    assert "With 62.5 % of the labels known" in text


def test_what_is_far_below_is_named_and_not_drawn() -> None:
    results = [done("good", 0.8, 0, 0.8), done("fair", 0.8, 0, 0.7), done("low", 0.8, 0, 0.1)]
    assert "Too far below to be drawn: LOW." in _page(results).text


def test_the_page_is_one_file(tmp_path: Path) -> None:
    assert write_page(tmp_path, _facts("chronospike", "logistic"), RESULTS, summarise(RESULTS)).name == "index.html"
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
