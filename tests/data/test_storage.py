from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.data.as_of import step_as_of
from chronospike.data.attributes import Column
from chronospike.data.feature_store import write_features
from chronospike.data.graph import DynamicGraph
from chronospike.data.ids import NodeIds
from chronospike.data.storage import data_key, feature_sets, graph_key, open_graph, save_graph, structure_key
from chronospike.errors import GraphError, InputError, OutOfSpaceError, StorageError
from tests.made_steps import MadeBy
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
    assert again.events is not None
    assert graph.events is not None
    for part in ("source", "target", "time", "step_offsets"):
        assert np.array_equal(getattr(again.events, part), getattr(graph.events, part))


def test_a_graph_opens_by_memory_map(tmp_path: Path) -> None:
    again = open_graph(save_graph(_full_graph(), tmp_path / "g"))
    assert isinstance(again.features, np.memmap)
    assert isinstance(again.snapshot.neighbours, np.memmap)
    assert again.events is not None
    assert isinstance(again.events.time, np.memmap)


def _without_events(folder: Path) -> Path:
    """The folder as versions wrote it that kept no events."""
    for path in folder.glob("events_*.npy"):
        path.unlink()
    meta = json.loads((folder / "meta.json").read_text())
    del meta["events"]
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_a_folder_without_events_opens_and_says_so_only_when_they_are_needed(tmp_path: Path) -> None:
    graph = open_graph(_without_events(save_graph(_full_graph(), tmp_path / "g")), verify=True).validate()
    assert graph.events is None
    assert repr(graph) == repr(_full_graph())
    with pytest.raises(GraphError, match="Import it again"):
        graph.require(events=True)


def test_keys_are_those_of_a_folder_without_events(tmp_path: Path) -> None:
    new, old = (save_graph(_full_graph(), tmp_path / name) for name in ("new", "old"))
    _without_events(old)
    assert (graph_key(new), data_key(new)) == (graph_key(old), data_key(old))
    assert structure_key(open_graph(new)) == structure_key(open_graph(old)) == graph_key(old)
    # As they were before events were kept; feature sets and runs are found by them.
    assert (graph_key(old), data_key(old)) == ("63f98a2d9a652e96", "8ae3a70270701296")


def test_the_entry_for_events_lies_where_earlier_versions_do_not_look(tmp_path: Path) -> None:
    meta = json.loads((save_graph(_full_graph(), tmp_path / "g") / "meta.json").read_text())
    assert meta["version"] == 1
    assert not any(name.startswith("events") for name in meta["arrays"])


def test_a_damaged_time_of_an_event_is_noticed(tmp_path: Path) -> None:
    path = save_graph(_full_graph(), tmp_path / "g") / "events_time.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=r"events_time\.npy has a wrong checksum"):
        open_graph(tmp_path / "g")
    path.unlink()
    with pytest.raises(StorageError, match=r"events_time\.npy is missing"):
        open_graph(tmp_path / "g")


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


def test_a_file_in_place_of_a_folder_is_called_a_file(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("u,v,t\na,b,1\n")
    with pytest.raises(
        StorageError, match=r"edges.csv is a file, not a graph folder. .*data import .*edges.csv -o FOLDER"
    ):
        open_graph(tmp_path / "edges.csv")


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
        folder,
        name,
        {"made": "here"},
        graph_key(folder),
        (4, 6, 3),
        np.float32,
        MadeBy(lambda t: np.full((6, 3), value + t)),
    )


def test_the_only_feature_set_is_used_by_default(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    _add_set(folder, "ones", 1.0)
    assert feature_sets(folder) == ["ones"]
    assert open_graph(folder).made_features[0][2, 0].tolist() == [3.0, 3.0, 3.0]


def test_embeddings_of_a_run_are_not_used_unless_they_are_named(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    maker = MadeBy(lambda step: np.ones((6, 3)))
    write_features(folder, "labels-1", {"method": "run", "of": "labels"}, graph_key(folder), (4, 6, 3), "<f4", maker)
    assert not open_graph(folder).has_features
    assert open_graph(folder, features="labels-1").has_features


def test_a_graph_knows_how_its_features_were_made(tmp_path: Path) -> None:
    folder = save_graph(_full_graph(), tmp_path / "g")
    write_features(
        folder, "a", {"method": "svd"}, graph_key(folder), (4, 6, 3), "<f4", MadeBy(lambda step: np.ones((6, 3)))
    )
    assert open_graph(folder).recipes == ()
    graph = open_graph(folder, features="own+a")
    assert graph.recipes == ({"method": "svd", "edges": graph_key(folder)},)
    assert graph.with_made_features(np.ones((4, 6, 1))).recipes == ()


def test_features_that_are_not_text_are_refused(tmp_path: Path) -> None:
    names: Any = ["own", "a"]
    with pytest.raises(InputError, match=r"features \['own', 'a'\]: give one name, several joined with \+"):
        open_graph(save_graph(_full_graph(), tmp_path / "g"), features=names)


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


def _put(folder: Path, name: str, array: np.ndarray[Any, Any]) -> None:
    """Replace an array, or add one, with all that `meta.json` says of it in order."""
    path = folder / f"{name}.npy"
    path.unlink(missing_ok=True)
    np.save(path, array)
    meta = json.loads((folder / "meta.json").read_text())
    array = np.asarray(array)
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    group, entry = ("events", name.removeprefix("events_")) if name.startswith("events_") else ("arrays", name)
    meta[group][entry] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}
    (folder / "meta.json").write_text(json.dumps(meta))


def _with_text_ids() -> DynamicGraph:
    return replace(_full_graph(), ids=NodeIds.of(["007", "a,b", "hi", "", "naïve", "x"]))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("history_neighbours", lambda a: a + 1000),
        ("snapshot_neighbours", lambda a: -1 - a),
        ("snapshot_neighbours", lambda a: a[::-1].copy()),
        ("snapshot_neighbours", lambda a: a[:-1]),
        ("snapshot_neighbours", lambda a: a.astype(np.float32)),
        ("snapshot_neighbours", lambda a: a.astype(">i4")),
        ("snapshot_neighbours", lambda a: a.reshape(1, -1)),
        ("history_indptr", lambda a: a + 1),
        ("snapshot_indptr", lambda a: np.where(np.arange(7) == 3, 2**30, a).astype(a.dtype)),
        ("snapshot_indptr", lambda a: a[:-1]),
        ("history_step_offsets", lambda a: a + 1),
        ("snapshot_step_offsets", lambda a: a * 100),
        ("snapshot_step_offsets", lambda a: a[:, :-1].copy()),
        ("snapshot_step_offsets", lambda a: np.asfortranarray(a)),
        ("id_offsets", lambda a: a + 10**12),
        ("id_offsets", lambda a: a[::-1].copy()),
        ("id_offsets", lambda a: a[:0]),
        ("id_offsets", lambda a: a[:-1]),
        ("id_offsets", lambda a: a.astype(np.int32)),
        ("id_bytes", lambda a: np.full_like(a, 0xFF)),
        ("id_bytes", lambda a: a[:3]),
        ("labels", lambda a: a + 1),
        ("labels", lambda a: a - 5),
        ("labels", lambda a: a.astype(np.float64)),
        ("labels", lambda a: a[:4]),
        ("step_start", lambda a: a[::-1].copy()),
        ("step_start", lambda a: np.where(np.arange(4) == 2, np.nan, a)),
        ("step_start", lambda a: a.astype("datetime64[us]")),
        ("step_end", lambda a: a[:2]),
        ("step_end", lambda a: np.int64(40)),
        ("step_end", lambda a: a.astype("M8")),
        ("step_end", lambda a: np.zeros(4, dtype="U0")),
        ("step_end", lambda a: np.zeros(4, dtype=[("a", "<i4"), ("b", "<i4")])),
        ("features", lambda a: a[:, :5].copy()),
        ("features", lambda a: a.astype("U8")),
        ("events_source", lambda a: a + 6),
        ("events_target", lambda a: -1 - a),
        ("events_target", lambda a: a.astype(np.int64)),
        ("events_source", lambda a: a[:-1]),
        ("events_time", lambda a: a[::-1].copy()),
        ("events_time", lambda a: np.where(np.arange(8) == 0, np.nan, a)),
        ("events_time", lambda a: a[:, None].copy()),
        ("events_time", lambda a: a.astype("datetime64[D]")),
        ("events_step_offsets", lambda a: a[:-1]),
        ("events_step_offsets", lambda a: a + 1),
        ("events_step_offsets", lambda a: np.array([0, 4, 2, 6, 8])),
    ],
)
def test_an_array_that_cannot_be_right_is_refused_on_opening(
    name: str, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], tmp_path: Path
) -> None:
    folder = save_graph(_with_text_ids(), tmp_path / "g")
    _put(folder, name, change(np.load(folder / f"{name}.npy")))
    with pytest.raises(StorageError, match=r"Import the graph again$"):
        open_graph(folder)


def test_step_bounds_that_are_no_times_are_refused(tmp_path: Path) -> None:
    days = np.array(["2020-01-01", "2020-02-01", "NaT", "2021-01-01"], dtype="datetime64[us]")
    folder = save_graph(_full_graph(), tmp_path / "g")
    _put(folder, "step_start", days)
    _put(folder, "step_end", days)
    with pytest.raises(StorageError, match="the step bounds do not ascend"):
        open_graph(folder)


def test_a_file_that_is_no_array_is_refused(tmp_path: Path) -> None:
    folder = save_graph(_full_graph(), tmp_path / "g")
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"9" * 40 + b",), }\n"
    magic, open_brace, comma = b"\x93NUMPY\x01\x00", b"{'descr': '<i8', u\n", b"{'descr',: '<i8'}\n"
    arrays = [magic + len(header).to_bytes(2, "little") + header for header in (header, open_brace, comma)]
    for content in (b"PK\x03\x04", b"", *arrays):
        (folder / "labels.npy").write_bytes(content)
        with pytest.raises(StorageError, match=r"labels\.npy is damaged"):
            open_graph(folder)


def test_repeated_node_ids_are_found_when_everything_is_checked(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    _put(folder, "ids", np.array([4, 1, 2, 3, 4, 5]))
    with pytest.raises(GraphError, match="node ids repeat: 6 ids, 5 distinct"):
        open_graph(folder).validate()


def test_a_feature_set_of_another_size_is_refused(tmp_path: Path) -> None:
    folder = save_graph(six_nodes(), tmp_path / "g")
    write_features(folder, "f", {}, graph_key(folder), (3, 6, 2), np.float32, MadeBy(lambda t: np.ones((6, 2))))
    with pytest.raises(StorageError, match=r"features/f has shape \[3, 6, 2\], and the graph has 4 steps and 6 nodes"):
        open_graph(folder, features="f")


def test_narrow_labels_are_stored_as_torch_wants_them(tmp_path: Path) -> None:
    graph = six_nodes().with_labels(np.array([0, 1, 1, -1, -1, 0], dtype=np.int8), ("a", "b"))
    labels = open_graph(save_graph(graph, tmp_path / "g")).labels
    assert labels is not None
    assert labels.dtype == np.int64


def test_codes_of_categories_that_are_not_there_are_refused_on_opening(tmp_path: Path) -> None:
    codes = np.array([[0.0], [1.0], [np.nan], [0.0], [1.0], [1.0]], dtype=np.float32)
    graph = six_nodes().with_features(codes, (Column("colour", "category", ("blue", "red")),))
    folder = save_graph(graph, tmp_path / "g")
    for bad in (2.0, -1.0, 1e9, 0.5):
        _put(folder, "features", np.where(np.arange(6)[:, None] == 4, np.float32(bad), codes))
        with pytest.raises(StorageError, match="codes that its 2 categories do not have"):
            open_graph(folder)
