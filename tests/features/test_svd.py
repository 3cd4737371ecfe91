from __future__ import annotations

import itertools

import numpy as np
import pytest

from chronospike.data.label_propagation import recency_adjacency
from chronospike.features.options import SVD, Start
from chronospike.features.svd import SVDSteps, orthonormal, top_eigenvectors
from tests.six_nodes import six_nodes
from tests.small_runs import small_graph


def made(options: SVD, start: Start | None = None) -> list[np.ndarray]:
    graph = small_graph()
    steps = SVDSteps(graph, options, start=start)
    return [steps.make_step(step) for step in range(graph.num_steps)]


def test_rows_are_those_of_a_dense_eigendecomposition_up_to_rotation() -> None:
    graph, step = small_graph(), 3
    # With nearly all dimensions the subspace is the whole space, and nothing is left to converge.
    table = made(SVD(dimension=110, recency=2.0))[step]
    adjacency = recency_adjacency(graph, 2.0, step).toarray()
    degrees = adjacency.sum(axis=1)
    scale = np.where(degrees > 0, 1 / np.sqrt(degrees + degrees[degrees > 0].mean()), 0)
    values, vectors = np.linalg.eigh(scale[:, None] * adjacency * scale)
    largest = np.argsort(-np.abs(values))[:110]
    rows = vectors[:, largest] * np.sqrt(np.abs(values[largest]))
    rows[degrees > 0] /= np.linalg.norm(rows[degrees > 0], axis=1, keepdims=True)
    # Rotated or not, rows have the same products with each other.
    np.testing.assert_allclose(table @ table.T, rows @ rows.T, atol=1e-4)


def test_eigenvectors_of_a_known_matrix() -> None:
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    spectrum = np.array([3.0, -2.0, 1.0, *np.full(37, 0.01)])
    matrix = ((basis * spectrum) @ basis.T).astype(np.float32)
    vectors, values = top_eigenvectors(matrix, rng.normal(size=(40, 6)).astype(np.float32), 3)
    np.testing.assert_allclose(values, spectrum[:3], rtol=1e-4)
    np.testing.assert_allclose(np.abs(np.diag(vectors.T @ basis[:, :3])), 1, atol=1e-4)


def test_rows_have_length_one_and_nodes_without_an_edge_are_zero() -> None:
    graph = six_nodes()
    table = SVDSteps(graph, SVD(dimension=8)).make_step(1)
    seen = graph.seen_by(1)
    np.testing.assert_allclose(np.linalg.norm(table[seen], axis=1), 1, rtol=1e-5)
    assert not table[~seen].any()
    # Of three nodes there are three eigenvectors; what remains is zero in some rotation.
    assert np.linalg.matrix_rank(table, tol=1e-4) <= seen.sum()


def test_each_step_is_rotated_onto_the_one_before() -> None:
    tables = made(SVD(dimension=4))
    for before, after in itertools.pairwise(tables):
        # The polar factor of what is rotated best already is the identity: the product is symmetric and has no
        # negative eigenvalue.
        product = after.T.astype(np.float64) @ before
        np.testing.assert_allclose(product, product.T, atol=1e-4)
        assert np.linalg.eigvalsh((product + product.T) / 2).min() > -1e-4


@pytest.mark.parametrize("seed", [0, 7])
def test_features_of_the_same_graph_are_found_again_from_a_start(seed: int) -> None:
    graph, first = small_graph(), np.stack(made(SVD(dimension=4)))
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))
    start = Start(graph, (first @ rotation).astype(np.float32), "k")
    for step, table in enumerate(made(SVD(dimension=4), start)):
        np.testing.assert_allclose(table, first[step] @ rotation, atol=1e-4)


def test_recent_edges_weigh_more() -> None:
    even, recent = (made(SVD(dimension=4, recency=recency))[-1] for recency in (0.0, 3.0))
    assert not np.allclose(even @ even.T, recent @ recent.T, atol=1e-3)


def test_a_basis_spans_the_columns_and_drops_those_that_depend_on_others() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(200, 5)).astype(np.float32)
    basis = orthonormal(np.column_stack([table, table @ rng.normal(size=(5, 3)).astype(np.float32)]))
    assert basis.shape == (200, 5)
    np.testing.assert_allclose(basis.T @ basis, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(basis @ (basis.T @ table), table, atol=1e-4)
