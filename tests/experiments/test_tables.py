from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from chronospike.experiments.comparison import Comparison, summarise
from chronospike.experiments.tables import as_csv, as_markdown, as_tex, escape_tex, write_tables
from tests.experiments.small_grids import done

RESULTS = [
    done("chronospike", 0.8, 0, 0.80, 0.81), done("chronospike", 0.8, 1, 0.82, 0.83),
    done("b_1 & co | <i>", 0.8, 0, 0.70, 0.71), done("b_1 & co | <i>", 0.8, 1, 0.70, 0.71),
    {"variant": "slow", "method": "slow", "ratio": 0.8, "seed": 0, "status": "time"},
    done("slow", 0.8, 1, 0.5),
    {"variant": "c", "method": "c", "ratio": 0.8, "seed": 0, "status": "failed"},
    {"variant": "c", "method": "c", "ratio": 0.8, "seed": 1},
]  # fmt: skip
TITLES = {"chronospike": "ChronoSpike"}


@pytest.fixture
def comparison() -> Comparison:
    return summarise(RESULTS, "dblp")


def test_markdown_has_the_best_bold_and_the_second_underlined(comparison: Comparison) -> None:
    lines = as_markdown(comparison, TITLES).splitlines()
    # The deviation of 0.80 and 0.82 is √(2 · 0.01² / 1).
    assert lines[2:11] == [
        "| Method | Macro-F1 80 % | Micro-F1 80 % |",
        "| --- | --: | --: |",
        "| ChronoSpike | **81.00 ± 1.41** | **82.00 ± 1.41** |",
        "| the paper | 79.13 | 79.33 |",
        "| difference | +1.87 | +2.67 |",
        "| b_1 &amp; co \\| &lt;i> | <u>70.00 ± 0.00</u> | <u>71.00 ± 0.00</u> |",
        "| slow | 50.00 (1 of 2) | 50.00 (1 of 2) |",
        "| c | failed | failed |",
        "",
    ]


def test_tex_is_a_table_of_booktabs_with_every_sign_escaped(comparison: Comparison) -> None:
    lines = as_tex(comparison, TITLES).splitlines()
    assert r"ChronoSpike & \textbf{81.00\,$\pm$\,1.41} & \textbf{82.00\,$\pm$\,1.41} \\" in lines
    assert r"b\_1 \& co | <i> & \underline{70.00\,$\pm$\,0.00} & \underline{71.00\,$\pm$\,0.00} \\" in lines
    assert lines[2:4] == [r"\begin{tabular}{lrr}", r"\toprule"]


def test_nothing_means_anything_to_tex() -> None:
    assert escape_tex("a\\b{c}$d%e#f^g~h\ni") == (
        r"a\textbackslash{}b\{c\}\$d\%e\#f\textasciicircum{}g\textasciitilde{}h i"
    )


def test_csv_has_a_row_for_each_variant_ratio_and_metric(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison))))
    assert len(rows) == 4 * 2
    first = rows[0]
    assert (first["variant"], first["metric"], first["rank"], first["runs"]) == ("chronospike", "macro_f1", "best", "2")
    assert [float(first[name]) for name in ("mean", "std", "paper", "difference")] == pytest.approx(
        [0.81, 0.0002**0.5, 0.7913, 0.0187]
    )
    assert (rows[3]["mean"], rows[3]["rank"], rows[3]["planned"]) == ("", "", "2")


def test_every_cell_has_a_line(comparison: Comparison, tmp_path: Path) -> None:
    write_tables(tmp_path, RESULTS, comparison, TITLES)
    assert {path.name for path in tmp_path.iterdir()} == {"results.jsonl", "table.csv", "table.md", "table.tex"}
    assert [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()] == RESULTS


def test_places_stand_below_the_scores_where_the_paper_has_them() -> None:
    found = summarise([done("tgat", 0.8, 0, 0.7), done("htne", 0.8, 0, 0.8), done("labels", 0.8, 0, 0.9)], "dblp")
    text = as_markdown(found, {"tgat": "TGAT"})
    assert "| Place here (in the paper) | Macro-F1 80 % | Micro-F1 80 % |" in text
    assert "| TGAT | 2 (1) | 2 (1) |\n| htne | 1 (2) | 1 (2) |\n\nMacro-F1: Kendall's τ" in text
    assert "Place here" not in as_markdown(summarise(RESULTS), TITLES)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [row["place"] for row in rows[:3]] == ["2 (1)", "1 (2)", ""]
