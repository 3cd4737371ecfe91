from __future__ import annotations

import numpy as np
import pytest
import torch

from chronospike.data.label_features import _coefficients, label_features, spread
from chronospike.data.label_propagation import recency_operator
from chronospike.data.synthetic import synthetic_graph

gpu = pytest.importorskip("chronospike.data.label_kernel_gpu", reason="needs Triton")
pytestmark = pytest.mark.device
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("width", [1, 7, 300])
def test_it_adds_up_what_the_compiled_form_does(width: int) -> None:
    graph = synthetic_graph(nodes=40, steps=4, classes=4, degree=3.0, feature_dim=0)
    operator = recency_operator(graph, 3.0)
    values = np.random.default_rng(width).random((40, width), dtype=np.float32)
    coefficients = _coefficients(((0.9, 5), (0.5, 3)))
    expected = spread(operator, values.copy(), coefficients)
    np.testing.assert_allclose(gpu.spread_on_gpu(operator, values, coefficients, DEVICE), expected, rtol=1e-5)


@pytest.mark.gpu
def test_label_features_of_a_gpu_are_those_of_the_cpu() -> None:
    graph = synthetic_graph(nodes=2000, steps=6, classes=6, degree=4.0, feature_dim=0)
    known = np.arange(0, 2000, 2)
    assert graph.labels is not None
    one, other = (
        label_features(graph, known, graph.labels[known], known % 10, device=torch.device(place))
        for place in ("cpu", "cuda")
    )
    np.testing.assert_allclose(other, one, atol=1e-5)
