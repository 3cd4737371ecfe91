"""A sampled tree depends on the past alone, also where later nodes have ids that sort among the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as run

from chronospike.optional import has_triton
from chronospike.sampling.hybrid import HybridSampler
from tests.growing import Growing, growing
from tests.sampling.reference import GPU, settings

pytestmark = pytest.mark.device


def check_trees(graphs: Growing, options: dict[str, Any]) -> None:
    past, whole = (HybridSampler(graph, **options) for graph in (graphs.past, graphs.whole))
    tree = past.sample(range(graphs.past.num_nodes), epoch=2, steps=graphs.steps).nodes.cpu().numpy()
    again = whole.sample(graphs.place, epoch=2, steps=graphs.steps).nodes.cpu().numpy()
    assert (graphs.place[tree] == again).all()


@given(growing("integers"), settings)
@run(max_examples=60, deadline=None)
def test_later_nodes_change_no_tree(graphs: Growing, options: dict[str, Any]) -> None:
    check_trees(graphs, options)


@given(growing("texts"), settings)
@run(max_examples=60, deadline=None)
def test_later_nodes_change_no_tree_of_text_ids(graphs: Growing, options: dict[str, Any]) -> None:
    check_trees(graphs, options)


@pytest.mark.skipif(not has_triton(), reason="triton is not installed")
@given(growing("texts"), settings)
@run(max_examples=10, deadline=None)
def test_later_nodes_change_no_tree_of_triton(graphs: Growing, options: dict[str, Any]) -> None:
    check_trees(graphs, options | {"backend": "triton", "device": GPU})
