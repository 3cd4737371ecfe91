from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from chronospike.nn.model import ChronoSpike
from chronospike.training.inference import LANE, infer
from chronospike.training.problem import Problem, make_problem
from tests.small_runs import CPU, small_graph, small_settings, small_trainer, with_other_future

NODES = 300


@pytest.fixture(scope="module")
def trained() -> tuple[ChronoSpike, Problem]:
    """More nodes than one lane holds; labels as inputs, which must not break any promise either."""
    trainer = small_trainer(small_graph(NODES), label_inputs=True, epochs=1)
    return trainer.run(), trainer.problem


@pytest.mark.parametrize("order", ["reversed", "shuffled", "subset", "single", "repeated"])
def test_a_node_does_not_depend_on_what_else_is_in_the_batch(trained: tuple[ChronoSpike, Problem], order: str) -> None:
    model, problem = trained
    assert NODES > LANE
    everyone = infer(model, problem, np.arange(NODES))
    assert len(everyone[1].unique(dim=0)) > NODES // 2
    nodes = {
        "reversed": np.arange(NODES)[::-1],
        "shuffled": np.random.default_rng(0).permutation(NODES),
        "subset": np.arange(7, NODES, 13),
        "single": np.array([299]),
        "repeated": np.array([5, 5, 288, 5]),
    }[order]
    for all_values, some in zip(everyone, infer(model, problem, nodes.copy()), strict=True):
        assert torch.equal(all_values[nodes.copy()], some)


@pytest.mark.parametrize("last", [0, 2])
@pytest.mark.parametrize("history", ["strict", "inclusive"])
def test_as_of_a_step_no_later_edge_or_feature_matters(
    trained: tuple[ChronoSpike, Problem], last: int, history: str
) -> None:
    model, problem = trained
    settings = small_settings(label_inputs=True, history=history)
    nodes = np.arange(0, NODES, 3)
    graphs = problem.graph, with_other_future(problem.graph, last)
    encoder = problem.inputs.encoder
    found, other = (
        infer(model, make_problem(g, settings, CPU, problem.split, encoder=encoder).until(last), nodes) for g in graphs
    )
    assert torch.equal(found[0], other[0])
    assert torch.equal(found[1], other[1])
    whole, changed = (infer(model, make_problem(g, settings, CPU, problem.split), nodes)[1] for g in graphs)
    assert not torch.equal(whole, changed)


def test_samples_are_averaged(trained: tuple[ChronoSpike, Problem]) -> None:
    model, problem = trained
    nodes = np.arange(50)
    one = infer(model, problem, nodes)[0]
    several = infer(model, replace(problem, settings=problem.settings.change(samples=3)), nodes)[0]
    assert not torch.equal(one, several)
    torch.testing.assert_close(several.sum(dim=1), torch.ones(50))


def test_the_model_is_left_in_the_mode_it_was_in(trained: tuple[ChronoSpike, Problem]) -> None:
    model, problem = trained
    for mode in (True, False):
        model.train(mode)
        infer(model, problem, np.arange(3))
        assert model.training is mode


def test_progress_counts_the_nodes(trained: tuple[ChronoSpike, Problem]) -> None:
    model, problem = trained
    told: list[tuple[int, int]] = []
    infer(model, problem, np.arange(NODES), lambda done, total: told.append((done, total)))
    assert told == [(256, 300), (300, 300)]


def test_no_nodes_give_empty_tables(trained: tuple[ChronoSpike, Problem]) -> None:
    probabilities, embeddings = infer(*trained, np.arange(0))
    assert (list(probabilities.shape), list(embeddings.shape)) == ([0, 2], [0, 8])
