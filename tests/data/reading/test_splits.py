from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chronospike.data.graph import DynamicGraph
from chronospike.data.reading.splits import read_split
from chronospike.errors import InputError
from tests.six_nodes import six_nodes


def graph() -> DynamicGraph:
    return six_nodes().with_labels(np.array([0, 1, 0, 1, 0, -1]), ("a", "b"))


def written(folder: Path, text: str) -> Path:
    path = folder / "split.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_nodes_are_divided_as_the_file_says(tmp_path: Path) -> None:
    split = read_split(written(tmp_path, "node,split\n3,Test\n0,train\n1, train \n2,val\n"), graph())
    assert [part.tolist() for part in (split.train, split.validation, split.test)] == [[0, 1], [2], [3]]
    assert (split.facts["order"], split.facts["train"]) == ("own", 2)


def test_without_a_header_the_second_column_is_the_part(tmp_path: Path) -> None:
    split = read_split(written(tmp_path, "0 train\n1 train\n3 test\n"), graph())
    assert (split.train.tolist(), split.validation.tolist(), split.test.tolist()) == ([0, 1], [], [3])
    assert any("training nodes choose the best epoch" in note for note in split.facts["notes"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,train\n1,holdout\n", "split.csv row 3: 'holdout' is none of train, validation, test"),
        ("0,train\n1,\n", "row 3: '' is none of"),
        ("0,train\n9,test\n", "1 listed node is not in the graph, '9'"),
        ("0,train\n1,train\n5,test\n", "row 4: node '5' has no label. Leave it out"),
        ("0,train\n1,train\n0,test\n", "row 4: node '0' is in another part in row 2"),
        ("0,train\n1,train\n", "no node is in the part 'test'"),
        ("0,test\n", "no node is in the part 'train'"),
        ("0,train\n2,train\n1,test\n", "the training nodes have one class"),
        (",train\n", "row 2: 'node' is empty"),
    ],
)
def test_a_split_that_cannot_be_used_is_named(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_split(written(tmp_path, f"node,split\n{rows}"), graph())
    assert message in str(caught.value)
