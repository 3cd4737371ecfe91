from __future__ import annotations

from pathlib import Path

import pytest

from chronospike.data.reading.benchmark_files import read_benchmark
from chronospike.data.reading.edges import read_events
from chronospike.data.reading.labels import read_labels
from chronospike.errors import InputError


@pytest.fixture
def patent(tmp_path: Path) -> Path:
    """Three edges in two years; node 3 has a class and no edge."""
    edges = "[0, 1, 19800105, 500, 501]\n[2, 1, 19800820, 502, 501]\n[0, 2, 19811231, 500, 502]\n"
    nodes = "[0, 500, 19791231, 1]\n[1, 501, 19791231, 6]\n[2, 502, 19791231, 1]\n[3, 503, 19791231, 4]\n"
    (tmp_path / "patent_edges.json").write_text(edges)
    (tmp_path / "patent_nodes.json").write_text(nodes)
    return tmp_path


def test_patent_has_years_for_times_and_classes_as_given(patent: Path) -> None:
    files = read_benchmark(patent, "patent")
    assert files.events.time.tolist() == [1980, 1980, 1981]
    assert files.labels.names == ("1", "4", "6")
    assert files.labels.codes.tolist() == [0, 2, 0, 1]


def test_nodes_with_a_class_and_no_edge_belong_to_a_benchmark(patent: Path) -> None:
    assert list(read_benchmark(patent, "patent").events.ids) == [0, 1, 2, 3]


def test_only_the_loader_of_patent_makes_years_of_days_and_takes_the_fourth_value_for_a_class(patent: Path) -> None:
    events = read_events(patent / "patent_edges.json")
    assert events.time.tolist() == [19800105, 19800820, 19811231]
    labels, _ = read_labels(patent / "patent_nodes.json", events.ids, on_unknown="drop")
    assert labels.names == ("500", "501", "502")


def test_patent_without_days_is_refused(patent: Path) -> None:
    (patent / "patent_edges.json").write_text("[0, 1, 1980, 500, 501]\n")
    with pytest.raises(InputError, match="the third value of each row must be a day such as 19630101"):
        read_benchmark(patent, "patent")


def test_patents_other_columns_can_be_asked_for(patent: Path) -> None:
    events = read_events(patent / "patent_edges.json", source=4, target=5)
    assert list(events.ids) == [500, 501, 502]


def test_text_benchmarks_have_two_files(tmp_path: Path) -> None:
    (tmp_path / "tmall.txt").write_text("0 5 0.1\n5 2 0.2\n")
    (tmp_path / "node2label.txt").write_text("0 3\n2 1\n9 1\n")
    files = read_benchmark(tmp_path, "tmall")
    assert list(files.events.ids) == [0, 2, 5, 9]
    assert files.labels.codes.tolist() == [1, 0, -1, 0]


def test_a_missing_benchmark_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tmall.txt: no such file"):
        read_benchmark(tmp_path, "tmall")
