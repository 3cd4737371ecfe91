"""One batch of DynamicTriad in torch, for GPUs: see `dytriad_kernels.py` for what is minimised.

Edges, triads and the rows that they reach lie within a step, and smoothness reaches only from a step to the next. So
the steps are gone through one by one, and beside the tables there is room for the gradient of one step alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from chronospike.methods.dytriad_kernels import EPSILON, Objective, Samples, Table


class DeviceTables:
    """As `HostTables`, on any device."""

    def __init__(self, values: Tensor, theta: Tensor) -> None:
        self.values, self.squares = values, torch.zeros_like(values)
        self.theta, self.theta_squares = theta, torch.zeros_like(theta)

    def scores(self) -> Table:
        """`[T, N]` products of theta with every embedding."""
        return (self.values @ self.theta[:-1]).cpu().numpy()

    def descend(self, batch: Samples, objective: Objective) -> Tensor:
        """Adagrad and projection, once. Returns the terms of the loss before: proximity, smoothness, triads."""
        steps, nodes, _ = self.values.shape
        pairs, device = (steps - 1) * nodes, self.values.device
        losses, theta_gradient = torch.zeros(3, device=device), torch.zeros_like(self.theta)
        edges = _to(device, *batch.edges[1:3], batch.other_first, batch.other_second, batch.edges.weights)
        triads = _to(device, *batch.triads[1:6], batch.coefficients)
        # Where the samples of each step begin: they are in the order of the steps.
        edge_bounds = np.searchsorted(batch.edges.steps, np.arange(steps + 1)).tolist()
        triad_bounds = np.searchsorted(batch.triads.steps, np.arange(steps + 1)).tolist()
        before = None
        for step in range(steps):
            u = self.values[step]
            gradient = torch.zeros_like(u)
            if before is not None:
                gradient += u
                gradient -= before
                losses[1] += gradient.square().sum()
            if step + 1 < steps:
                gradient += u
                gradient -= self.values[step + 1]
            gradient *= 2 * objective.beta_smooth / max(pairs, 1)
            part = slice(edge_bounds[step], edge_bounds[step + 1])
            if part.start < part.stop:
                losses[0] += _add_proximity(u, gradient, [x[part] for x in edges], objective.margin, batch.edges.size)
            part = slice(triad_bounds[step], triad_bounds[step + 1])
            if part.start < part.stop:
                scale = objective.beta_triad / batch.triads.size
                losses[2] += _add_triads(u, gradient, self.theta, theta_gradient, [x[part] for x in triads], scale)
            before = u.clone() if step + 1 < steps else None
            _adagrad(u, self.squares[step], gradient, objective.rate)
            # One where the row is short enough.
            u /= torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp_(min=1)
        losses[1] *= objective.beta_smooth / max(pairs, 1)
        _adagrad(self.theta, self.theta_squares, theta_gradient, objective.rate)
        self.theta /= torch.linalg.vector_norm(self.theta).clamp(min=1e-7)
        return losses


def _to(device: torch.device, *arrays: NDArray[Any]) -> list[Tensor]:
    return [torch.from_numpy(array).to(device, non_blocking=True) for array in arrays]


def _add_proximity(u: Tensor, gradient: Tensor, edges: list[Tensor], margin: float, count: int) -> Tensor:
    """Add the gradient of the proximity of one step's edges to `gradient [N, d]`; their share of the loss."""
    first, second, other_first, other_second, weights = edges
    near, far = u[first] - u[second], u[other_first] - u[other_second]
    excess = near.square().sum(dim=1) - far.square().sum(dim=1) + margin
    loss = (weights * excess.relu()).sum() / count
    factor = (2 / count * weights * (excess > 0)).unsqueeze(1)
    near *= factor
    far *= factor
    gradient.index_add_(0, first, near)
    gradient.index_add_(0, second, near, alpha=-1)
    gradient.index_add_(0, other_first, far, alpha=-1)
    gradient.index_add_(0, other_second, far)
    return loss


def _add_triads(
    u: Tensor, gradient: Tensor, theta: Tensor, theta_gradient: Tensor, triads: list[Tensor], scale: float
) -> Tensor:
    """Add the gradients of one step's triads to `gradient [N, d]` and `theta_gradient`; their share of the loss."""
    centre, a, b, to_a, to_b, coefficients = triads
    score = u[centre] @ theta[:-1]
    z = to_a * (score - u[a] @ theta[:-1]) + to_b * (score - u[b] @ theta[:-1]) + theta[-1]
    slope = scale * (coefficients - 1 + z.sigmoid())
    pulls = torch.zeros(len(u), device=u.device)
    pulls.index_add_(0, centre, slope * (to_a + to_b))
    pulls.index_add_(0, a, slope * to_a, alpha=-1)
    pulls.index_add_(0, b, slope * to_b, alpha=-1)
    theta_gradient[:-1] += pulls @ u
    theta_gradient[-1] += slope.sum()
    gradient.addr_(pulls, theta[:-1])
    return scale * (coefficients * z + softplus(-z)).sum()


def _adagrad(values: Tensor, squares: Tensor, gradient: Tensor, rate: float) -> None:
    squares.addcmul_(gradient, gradient)
    values.addcdiv_(gradient, squares.sqrt().add_(EPSILON), value=-rate)
