from __future__ import annotations

import pytest

from chronospike.experiments.paper_results import METHODS, paper_score


@pytest.mark.parametrize(
    ("dataset", "method", "metric", "ratio", "score"),
    [
        ("dblp", "chronospike", "macro_f1", 0.4, 0.7584),
        ("dblp", "delay-dsgn", "micro_f1", 0.8, 0.7687),
        ("tmall", "deepwalk", "macro_f1", 0.6, 0.4929),
        ("patent", "chronospike", "micro_f1", 0.6, 0.8616),
        ("patent", "dytriad", "micro_f1", 0.6, None),
        ("dblp", "chronospike", "macro_f1", 0.404, None),
        ("pubmed", "chronospike", "macro_f1", 0.8, None),
        ("dblp", "logistic", "macro_f1", 0.8, None),
        (None, "chronospike", "macro_f1", 0.8, None),
    ],
)
def test_the_figures_are_those_of_the_papers_table(
    dataset: str | None, method: str, metric: str, ratio: float, score: float | None
) -> None:
    assert paper_score(dataset, method, metric, ratio) == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize("dataset", ["dblp", "tmall", "patent"])
@pytest.mark.parametrize("metric", ["macro_f1", "micro_f1"])
@pytest.mark.parametrize("ratio", [0.4, 0.6, 0.8])
def test_chronospike_is_the_best_and_delay_dsgn_the_second_in_every_row_of_the_paper(
    dataset: str, metric: str, ratio: float
) -> None:
    scores = {method: paper_score(dataset, method, metric, ratio) or 0.0 for method in METHODS}
    assert sorted(scores, key=lambda method: -scores[method])[:2] == ["chronospike", "delay-dsgn"]
