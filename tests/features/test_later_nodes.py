"""The features of a step depend on the past alone, also where later nodes have ids that sort among the others."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as run
from hypothesis import strategies as st

from chronospike.data.graph import DynamicGraph
from chronospike.features.activity import ActivitySteps
from chronospike.features.deepwalk import DeepWalkSteps
from chronospike.features.fastrp import FastRPSteps
from chronospike.features.options import SVD, DeepWalk, FastRP
from chronospike.features.svd import SVDSteps
from tests.growing import Growing, growing

GRAPHS = st.one_of(growing("integers"), growing("texts"))


@given(GRAPHS, st.sampled_from([0.0, -0.5, 0.3]))
@run(max_examples=60, deadline=None)
def test_later_nodes_change_no_bit_of_fastrp(graphs: Growing, normalization: float) -> None:
    options = FastRP(dimension=5, weights=(0.5, 1.0, 2.0), normalization=normalization, threads=1)
    for step in graphs.steps:
        past, whole = (FastRPSteps(graph, options).make_step(step) for graph in (graphs.past, graphs.whole))
        assert (whole[graphs.place] == past).all()
        assert not np.delete(whole, graphs.place, axis=0).any()


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("unseen", ["noise", "zero"])
@given(GRAPHS)
@run(max_examples=25, deadline=None)
def test_later_nodes_change_no_bit_of_deepwalk(
    warm_start: bool, unseen: Literal["noise", "zero"], graphs: Growing
) -> None:
    options = DeepWalk(
        dimension=5, walks=2, length=6, window=2, negatives=2, warm_start=warm_start, unseen=unseen, threads=1
    )

    def tables(graph: DynamicGraph) -> list[np.ndarray]:
        steps = DeepWalkSteps(graph, options)
        return [steps.make_step(step) for step in graphs.steps]

    for past, whole in zip(tables(graphs.past), tables(graphs.whole), strict=True):
        assert (whole[graphs.place] == past).all()


@given(GRAPHS)
@run(max_examples=25, deadline=None)
def test_later_nodes_change_no_bit_of_svd(graphs: Growing) -> None:
    past, whole = (SVDSteps(graph, SVD(dimension=3, threads=1)) for graph in (graphs.past, graphs.whole))
    for step in graphs.steps:
        before, after = past.make_step(step), whole.make_step(step)
        assert (after[graphs.place] == before).all()
        assert not np.delete(after, graphs.place, axis=0).any()


@given(GRAPHS)
@run(max_examples=25, deadline=None)
def test_later_nodes_change_no_bit_of_activity(graphs: Growing) -> None:
    for step in graphs.steps:
        past, whole = (ActivitySteps(graph).make_step(step) for graph in (graphs.past, graphs.whole))
        assert (whole[graphs.place] == past).all()
        assert not np.delete(whole, graphs.place, axis=0).any()
