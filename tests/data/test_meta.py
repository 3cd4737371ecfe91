"""No `meta.json`, however damaged, may lead to anything but a graph or one line."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chronospike.cli import run
from chronospike.data.feature_store import write_features
from chronospike.data.ids import NodeIds
from chronospike.data.storage import graph_key, open_graph, save_graph
from chronospike.errors import ChronoSpikeError, StorageError
from tests.made_steps import MadeBy
from tests.path_of_four import path_of_four

OTHERS: tuple[Any, ...] = (None, True, 7, -1, 10**30, 1.5, "text", "", [], [7], [[None]], ["a", "a"], {}, {"a": 1})
DROPPED = object()


def _folder(path: Path) -> Path:
    graph = path_of_four((0, 1, 2), count=3).with_labels(np.array([0, 1, -1, 0]), ("a", "b"))
    folder = save_graph(graph, path)
    key = graph_key(folder)
    write_features(folder, "made", {"by": "hand"}, key, (3, 4, 2), np.float32, MadeBy(lambda t: np.ones((4, 2))))
    return folder


def _places(content: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every entry of every object in `content`, as the names that lead to it."""
    for name, value in content.items() if isinstance(content, dict) else ():
        yield (*above, name)
        yield from _places(value, (*above, name))


def _damaged(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """`content` with one entry dropped, or of another value, or one too many; and what was done."""
    for place in _places(content):
        for value in (DROPPED, *OTHERS):
            changed = copy.deepcopy(content)
            inner = changed
            for name in place[:-1]:
                inner = inner[name]
            inner.pop(place[-1]) if value is DROPPED else inner.update({place[-1]: value})
            what = "dropped" if value is DROPPED else repr(value)
            yield f"{'.'.join(place)} {what}", changed


@pytest.mark.parametrize("file", ["meta.json", "features/made/meta.json"])
def test_a_damaged_meta_file_gives_a_graph_or_one_line(file: str, tmp_path: Path) -> None:
    path = _folder(tmp_path / "g") / file
    tried = 0
    for what, content in _damaged(json.loads(path.read_text())):
        path.write_text(json.dumps(content))
        try:
            repr(open_graph(tmp_path / "g").summary())
        except ChronoSpikeError as error:
            assert str(tmp_path / "g") in str(error), what
        except BaseException as error:
            raise AssertionError(f"{what}: {error!r}") from error
        tried += 1
    assert tried > 100


@pytest.mark.parametrize("content", ["", "null", "[]", "7", "[" * 100_000, "9" * 5000, '{"format": "\\ud800"}', "{"])
def test_a_meta_file_that_holds_no_object_is_refused(content: str, tmp_path: Path) -> None:
    (_folder(tmp_path / "g") / "meta.json").write_text(content)
    with pytest.raises(StorageError, match=r"meta\.json"):
        open_graph(tmp_path / "g")


def test_an_array_outside_the_folder_is_refused(tmp_path: Path) -> None:
    path = _folder(tmp_path / "g") / "meta.json"
    meta = json.loads(path.read_text())
    np.save(tmp_path / "x.npy", np.zeros(3))
    meta["arrays"]["../x"] = {"dtype": "<f8", "shape": [3], "sha256": ""}
    path.write_text(json.dumps(meta))
    with pytest.raises(StorageError, match=r"meta\.json is damaged: arrays\.\.\./x"):
        open_graph(tmp_path / "g")


@pytest.mark.parametrize("entry", [{"facts": {"rows": "many", "duplicates": None}}, {"facts": {"rows": 3}}])
def test_facts_of_other_types_are_left_out_of_what_info_prints(
    entry: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _folder(tmp_path / "g") / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entry}))
    assert run(["data", "info", str(tmp_path / "g")]) == 0
    assert "rows read" not in capsys.readouterr().out


def test_class_names_without_labels_are_ignored(tmp_path: Path) -> None:
    path = save_graph(path_of_four(), tmp_path / "g") / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "class_names": ["a", "b"]}))
    assert open_graph(tmp_path / "g").num_classes == 0


def test_text_ids_survive_the_check_of_their_bytes(tmp_path: Path) -> None:

    graph = replace(path_of_four(), ids=NodeIds.of(["", "ü", "naïve", "x"]))
    assert list(open_graph(save_graph(graph, tmp_path / "g")).ids) == ["", "ü", "naïve", "x"]
