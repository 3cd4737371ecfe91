from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronospike.data import csr_check, csr_kernel
from chronospike.data.csr import TimeSlicedCSR, history_and_snapshot
from chronospike.data.csr_check import check_views
from chronospike.errors import GraphError
from tests.six_nodes import six_nodes


def _changed(view: TimeSlicedCSR, part: str, place: int, value: int) -> TimeSlicedCSR:
    """A copy with one number of one array replaced; the place counts through the flattened array."""
    arrays = {name: getattr(view, name).copy() for name in ("indptr", "step_offsets", "neighbours")}
    arrays[part].reshape(-1)[place] = value
    return TimeSlicedCSR(**arrays)


# Rows of the snapshot, step by step: 0: 1 | 2 | 1 3 | 4;  1: 0 | 2 | 0 |;  2: | 0 1 | | 3;  3: | | 0 | 2;  4: | | | 0.
@pytest.mark.parametrize(
    ("part", "place", "value", "said"),
    [
        ("indptr", 0, 1, "row starts of the snapshot"),
        ("indptr", 3, -5, "row starts of the snapshot"),
        ("indptr", 2, 2**31 - 1, "row starts of the snapshot"),
        ("indptr", 6, 13, "row starts of the snapshot"),
        ("step_offsets", 0, 1, "step offsets of the snapshot"),
        ("step_offsets", 2, -1, "step offsets of the snapshot"),
        ("step_offsets", 4, 32767, "step offsets of the snapshot"),
        ("neighbours", 0, 6, r"snapshot names a neighbour outside 0\.\.5"),
        ("neighbours", 0, -1, r"snapshot names a neighbour outside 0\.\.5"),
        ("neighbours", 0, 0, "row 0 of the snapshot contains the node itself"),
        ("neighbours", 3, 1, "row 0 of the snapshot do not ascend"),
        ("neighbours", 9, 0, "row 2 of the snapshot do not ascend"),
        ("neighbours", 4, 3, "row 0 of the history does not match the snapshot"),
    ],
)
def test_a_wrong_number_in_the_snapshot_is_named(part: str, place: int, value: int, said: str) -> None:
    graph = six_nodes()
    with pytest.raises(GraphError, match=said):
        check_views(graph.history, _changed(graph.snapshot, part, place, value), directed=False)


@pytest.mark.parametrize(
    ("part", "place", "value", "said"),
    [
        ("indptr", 3, 4, "of the history"),
        ("step_offsets", 3, 99, "step offsets of the history"),
        ("step_offsets", 3, 2, "row 0 of the history does not match the snapshot"),
        ("neighbours", 0, 17, r"history names a neighbour outside 0\.\.5"),
        ("neighbours", 1, 1, "row 0 of the history does not match the snapshot"),
        ("neighbours", 3, 5, "row 0 of the history does not match the snapshot"),
    ],
)
def test_a_wrong_number_in_the_history_is_named(part: str, place: int, value: int, said: str) -> None:
    graph = six_nodes()
    with pytest.raises(GraphError, match=said):
        check_views(_changed(graph.history, part, place, value), graph.snapshot, directed=False)


def test_an_edge_in_one_row_only_is_noticed_unless_edges_have_a_direction() -> None:
    graph = six_nodes(directed=True)
    check_views(graph.history, graph.snapshot, directed=True)
    with pytest.raises(GraphError, match="is in the row of only one of its nodes"):
        check_views(graph.history, graph.snapshot, directed=False)


def test_an_edge_with_other_steps_in_its_two_rows_is_noticed() -> None:
    views = history_and_snapshot(np.array([0, 1]), np.array([1, 0]), np.array([0, 1]), 2, 2)
    with pytest.raises(GraphError, match="is in the row of only one of its nodes"):
        check_views(*views, directed=False)


@pytest.mark.parametrize("dtype", [np.float64, np.uint32, np.dtype(">i4")])
def test_arrays_that_are_no_native_signed_integers_are_refused(dtype: np.dtype[np.generic]) -> None:
    graph = six_nodes()
    s = graph.snapshot
    with pytest.raises(GraphError, match="neighbours of the snapshot is"):
        check_views(graph.history, TimeSlicedCSR(s.indptr, s.step_offsets, s.neighbours.astype(dtype)), False)


def test_views_of_other_sizes_are_refused() -> None:
    graph, short = six_nodes(), history_and_snapshot(np.array([0, 1]), np.array([1, 0]), np.array([0, 0]), 2, 4)[1]
    with pytest.raises(GraphError, match="history covers 6 nodes and 4 steps, the snapshot 2 nodes and 4 steps"):
        check_views(graph.history, short, directed=False)
    with pytest.raises(GraphError, match="row starts for 6 nodes"):
        check_views(graph.history, TimeSlicedCSR(short.indptr, graph.snapshot.step_offsets, short.neighbours), False)


entries = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 4)), min_size=1, max_size=60)


@pytest.mark.parametrize("threads", [1, 3])
@given(listed=entries)
def test_what_was_built_passes_on_any_number_of_threads(threads: int, listed: list[tuple[int, int, int]]) -> None:
    proper = [(v, u, t) for v, u, t in listed if v != u] or [(0, 1, 0)]
    rows, near, steps = (np.array(column) for column in zip(*proper, strict=True))
    both = np.concatenate([rows, near]), np.concatenate([near, rows]), np.concatenate([steps, steps])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr_kernel, "default_threads", lambda: threads)
        patch.setattr(csr_check, "_FEW", 0)
        check_views(*history_and_snapshot(rows, near, steps, 8, 5), directed=True)
        check_views(*history_and_snapshot(*both, 8, 5), directed=False)


@given(listed=entries, part=st.sampled_from(["indptr", "step_offsets", "neighbours"]), data=st.data())
def test_the_rebuilt_copy_and_the_compiled_pass_agree(
    listed: list[tuple[int, int, int]], part: str, data: st.DataObject
) -> None:
    proper = [(v, u, t) for v, u, t in listed if v != u] or [(0, 1, 0)]
    rows, near, steps = (np.array(column) for column in zip(*proper, strict=True))
    both = np.concatenate([rows, near]), np.concatenate([near, rows]), np.concatenate([steps, steps])
    history, snapshot = history_and_snapshot(*both, 8, 5)
    place, value = data.draw(st.integers(0, getattr(history, part).size - 1)), data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        history = _changed(history, part, place, value)
    else:
        snapshot = _changed(snapshot, part, place, value)
    said = []
    for few in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csr_check, "_FEW", few)
            try:
                check_views(history, snapshot, directed=False)
                said.append("")
            except GraphError as error:
                said.append(str(error))
    assert said[0] == said[1]
    assert (not said[1]) == csr_check._is_what_it_would_be_built_as(history, snapshot, directed=False)
