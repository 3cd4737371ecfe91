from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chronospike.data.as_of import step_as_of
from chronospike.data.attributes import Column
from chronospike.data.feature_store import write_features
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.storage import data_key, feature_sets, graph_key, open_graph, save_graph, structure_key
from chronospike.errors import InputError, OutOfSpaceError, StorageError
from tests.six_nodes import six_nodes


def _full_graph() -> DynamicGraph:
    graph = six_nodes().with_labels(np.array([0, 1, 1, -1, -1, 0]), ("Zürich", "a,b"))
    return graph.with_features(np.arange(48, dtype=np.float32).reshape(4, 6, 2))


def test_a_graph_comes_back_as_it_was(tmp_path: Path) -> None:
    graph = _full_graph()
    again = open_graph(save_graph(graph, tmp_path / "g")).validate()
    assert repr(again) == repr(graph)
    assert again.summary() == graph.summary()
    assert again.ids == graph.ids
    assert np.array_equal(again.history.neighbours, graph.history.neighbours)
    assert again.features is not None
    assert np.array_equal(again.features, np.arange(48).reshape(4, 6, 2))


def test_a_graph_opens_by_memory_map(tmp_path: Path) -> None:
    again = open_graph(save_graph(_full_graph(), tmp_path / "g"))
    assert isinstance(again.features, np.memmap)
    assert isinstance(again.snapshot.neighbours, np.memmap)


def test_text_ids_and_dates_come_back(tmp_path: Path) -> None:
    from dataclasses import replace

    days = np.array(["2020-01-01", "2020-02-01", "2020-03-01", "2021-01-01"], dtype="datetime64[us]")
    ids = NodeIds.of(["007", "a,b", 'say "hi"', "", "naïve", "x"])
    graph = replace(six_nodes(), ids=ids, step_start=days, step_end=days)
    again = open_graph(save_graph(graph, tmp_path / "g"))
    assert list(again.ids) == ["007", "a,b", 'say "hi"', "", "naïve", "x"]
    assert step_as_of(again, "2020-02-15") == 1


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = save_graph(_full_graph(), tmp_path / "g") / "snapshot_neighbours.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=r"snapshot_neighbours\.npy has a wrong checksum"):
        open_graph(tmp_path / "g")


def test_a_truncated_array_is_noticed(tmp_path: Path) -> None:
    path = save_graph(_full_graph(), tmp_path / "g") / "labels.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(StorageError, match=r"labels\.npy is damaged"):
        open_graph(tmp_path / "g")


def test_a_missing_array_is_noticed(tmp_path: Path) -> None:
    (save_graph(_full_graph(), tmp_path / "g") / "step_end.npy").unlink()
    with pytest.raises(StorageError, match=r"step_end\.npy is missing"):
        open_graph(tmp_path / "g")


def _edit_meta(folder: Path, **changes: object) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, **changes}))


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    _edit_meta(save_graph(_full_graph(), tmp_path / "g"), version=2)
    with pytest.raises(StorageError, match=r"has graph format 2; this chronospike .* reads 1"):
        open_graph(tmp_path / "g")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    _edit_meta(save_graph(_full_graph(), tmp_path / "g"), format="other")
    with pytest.raises(StorageError, match="does not describe a graph"):
        open_graph(tmp_path / "g")
    with pytest.raises(StorageError, match="is not a graph folder"):
        open_graph(tmp_path)
    with pytest.raises(StorageError, match="does not exist"):
        open_graph(tmp_path / "nowhere")


def test_a_meta_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (save_graph(_full_graph(), tmp_path / "g") / "meta.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read as JSON"):
        open_graph(tmp_path / "g")


def test_an_existing_folder_is_not_replaced_unasked(tmp_path: Path) -> None:
    save_graph(_full_graph(), tmp_path / "g")
    with pytest.raises(InputError, match="--overwrite"):
        save_graph(six_nodes(), tmp_path / "g")
    save_graph(six_nodes(), tmp_path / "g", overwrite=True)
    assert open_graph(tmp_path / "g").labels is None


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("chronospike.data.storage._write_array", full)
    with pytest.raises(OutOfSpaceError):
        save_graph(_full_graph(), tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def test_the_key_depends_on_the_edges_alone(tmp_path: Path) -> None:
    plain = graph_key(save_graph(six_nodes(), tmp_path / "a"))
    assert graph_key(save_graph(_full_graph(), tmp_path / "b")) == plain
    assert graph_key(save_graph(six_nodes(directed=True), tmp_path / "c")) != plain


def test_the_data_key_depends_on_all_that_is_there_but_not_on_sets_made_later(tmp_path: Path) -> None:
    plain = data_key(save_graph(six_nodes(), tmp_path / "a"))
    assert data_key(save_graph(six_nodes(), tmp_path / "again")) == plain
    _add_set(tmp_path / "a", "later", 0.0)
    assert data_key(tmp_path / "a") == plain
    full = _full_graph()
    assert full.labels is not None
    named = [f"{name}?" for name in full.class_names]
    others = [full, replace(full, labels=np.roll(full.labels, 1)), replace(full, class_names=tuple(named))]
    keys = {data_key(save_graph(graph, tmp_path / f"b{i}")) for i, graph in enumerate(others)}
    assert len(keys | {plain}) == 4


def _add_set(folder: Path, name: str, value: float) -> None:
    write_features(
        folder, name, {"made": "here"}, graph_key(folder), (4, 6, 3), np.float32, lambda t: np.full((6, 3), value + t)
    )


def test_the_only_feature_set_is_used_by_default(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    _add_set(folder, "ones", 1.0)
    assert feature_sets(folder) == ["ones"]
    assert open_graph(folder).made_features[0][2, 0].tolist() == [3.0, 3.0, 3.0]


def test_of_several_feature_sets_one_is_chosen_by_name(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    _add_set(folder, "ones", 1.0)
    _add_set(folder, "tens", 10.0)
    assert not open_graph(folder).has_features
    assert open_graph(folder, features="tens").made_features[0][0, 0, 0] == 10.0
    with pytest.raises(StorageError, match="no feature set 'twos' .there: ones, tens"):
        open_graph(folder, features="twos")


def test_attributes_and_feature_sets_are_opened_together(tmp_path: Path) -> None:
    folder = save_graph(_full_graph(), tmp_path / "g")
    _add_set(folder, "ones", 1.0)
    _add_set(folder, "tens", 10.0)
    graph = open_graph(folder, features="own+tens")
    assert graph.features is not None
    assert [made[0, 0, 0] for made in graph.made_features] == [10.0]
    alone = open_graph(folder, features="tens+ones")
    assert alone.features is None
    assert [made[0, 0, 0] for made in alone.made_features] == [10.0, 1.0]
    with pytest.raises(InputError, match="name one set twice"):
        open_graph(folder, features="ones+ones")


def test_what_the_attributes_are_survives_and_counts_as_data(tmp_path: Path) -> None:
    codes = np.array([[0.0], [1.0], [np.nan], [0.0], [1.0], [1.0]], dtype=np.float32)
    keys = []
    for names in (("blue", "red"), ("blue", "green")):
        columns = (Column("colour", "category", names),)
        folder = save_graph(six_nodes().with_features(codes, columns), tmp_path / names[1])
        assert open_graph(folder).columns == columns
        keys.append(data_key(folder))
    assert len(set(keys)) == 2


def test_a_folder_that_does_not_say_what_its_attributes_are_has_numbers(tmp_path: Path) -> None:
    folder = save_graph(_full_graph(), tmp_path / "g")
    _edit_meta(folder, columns=None)
    assert open_graph(folder).columns == (Column("x0"), Column("x1"))


def test_the_key_of_a_graph_is_that_of_its_folder(tmp_path: Path) -> None:
    graph = _full_graph()
    assert structure_key(graph) == graph_key(save_graph(graph, tmp_path / "g"))
