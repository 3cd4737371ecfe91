"""One batch of DynamicTriad: losses, gradients, Adagrad and projection, compiled for the CPU.

With u the embeddings `[T, N, d]`, the loss of a batch is the sum of

* proximity, the mean over its edges of `w max(0, |u_i - u_j|² - |u_i' - u_j'|² + margin)`,
* `beta_smooth` times the mean over *all* nodes and steps but the first of `|u_v(t) - u_v(t - 1)|²`,
* `beta_triad` times the mean over its triads of `C z + log(1 + exp(-z))`, where
  `z = theta·(w_a (u_c - u_a) + w_b (u_c - u_b)) + theta_0`.

Adagrad moves every value, since the smoothness has a gradient everywhere. So a batch costs a pass over all values and
all sums of squares, whose memory traffic is what it takes. On the CPU that pass does everything at once for a few nodes
after another; the rows that edges and triads reach have their gradient added from a table of those rows alone. All
additions have a fixed order: the result is the same with any number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chronospike.compiled import FAST, njit
from chronospike.methods.step_graphs import Edges
from chronospike.methods.triads import Triads
from chronospike.threads import run_chunks

Table = NDArray[np.float32]

# Of Keras' Adagrad in the versions that the published program was made for.
EPSILON = 1e-8
# Nodes whose rows of two steps stay in the cache together.
_BLOCK = 64


class Objective(NamedTuple):
    """The numbers of the loss, and the learning rate."""

    rate: float = 0.1
    margin: float = 1.0
    beta_smooth: float = 0.1
    beta_triad: float = 0.1


class Samples(NamedTuple):
    """What an iteration goes through, or a batch of it.

    Attributes:
        edges, other_first, other_second: `[B]` edges and what they were corrupted to.
        triads, coefficients: `[B]` open triads and their C.
    """

    edges: Edges
    other_first: NDArray[np.int32]
    other_second: NDArray[np.int32]
    triads: Triads
    coefficients: Table

    def batch(self, number: int, size: int) -> Samples:
        """The `number`-th (from 0) `size` of them."""
        part = slice(number * size, (number + 1) * size)
        others = self.other_first[part], self.other_second[part]
        return Samples(self.edges.part(part), *others, self.triads.part(part), self.coefficients[part])


class HostTables:
    """All that is learned, in the memory of this machine.

    Attributes:
        values: `[T, N, d]` embeddings.
        theta: `[d + 1]` theta, and theta_0 last.
        squares, theta_squares: Adagrad's sums of the squares of gradients, of the same shapes.
    """

    def __init__(self, values: Table, theta: Table, threads: int | None = None) -> None:
        self.values, self.squares = values, np.zeros_like(values)
        self.theta, self.theta_squares = theta, np.zeros_like(theta)
        self._threads = threads
        steps, nodes, _ = values.shape
        # Which row of the gradients a row of the embeddings has in this batch.
        self._slots = np.full(steps * nodes, -1, dtype=np.int32)
        self._rows = np.empty(0, dtype=np.int64)
        self._gradient = np.empty((0, values.shape[2]), dtype=np.float32)
        self._pulls = np.empty(0, dtype=np.float32)

    def scores(self) -> Table:
        """`[T, N]` products of theta with every embedding."""
        found: Table = self.values @ self.theta[:-1]
        return found

    def descend(self, batch: Samples, objective: Objective) -> NDArray[np.float64]:
        """Adagrad and projection, once. Returns the terms of the loss before: proximity, smoothness, triads."""
        steps, nodes, width = self.values.shape
        flat = self.values.reshape(-1, width)
        self._make_room(4 * batch.edges.size + 3 * batch.triads.size)
        work = self._slots, self._rows, self._gradient, self._pulls
        losses = np.zeros(3)
        used, losses[0] = _proximity(
            flat, nodes, *batch.edges, batch.other_first, batch.other_second, np.float32(objective.margin), *work
        )
        theta_gradient = np.zeros(width + 1)
        used, losses[2] = _triads(
            flat, nodes, *batch.triads[:6], batch.coefficients, self.theta, objective.beta_triad, used,
            theta_gradient, *work,
        )  # fmt: skip
        pairs = (steps - 1) * nodes
        factor = np.float32(2 * objective.beta_smooth / pairs if pairs else 0)
        blocks = -(-nodes // _BLOCK)
        apart = np.zeros(blocks)

        def sweep(low: int, high: int) -> None:
            _sweep(
                flat, self.squares.reshape(-1, width), steps, nodes, self._slots, self._gradient, factor,
                np.float32(objective.rate), apart, low, high,
            )  # fmt: skip

        run_chunks(sweep, blocks, self._threads)
        losses[1] = objective.beta_smooth * apart.sum() / max(pairs, 1)
        _move_theta(self.theta, self.theta_squares, theta_gradient.astype(np.float32), objective.rate)
        return losses

    def _make_room(self, rows: int) -> None:
        rows = min(rows, len(self._slots))
        if len(self._rows) < rows:
            self._rows = np.empty(rows, dtype=np.int64)
            self._gradient = np.empty((rows, self.values.shape[2]), dtype=np.float32)
            self._pulls = np.empty(rows, dtype=np.float32)


def _move_theta(theta: Table, squares: Table, gradient: Table, rate: float) -> None:
    """Adagrad, and back to length 1."""
    squares += gradient * gradient
    theta -= np.float32(rate) * gradient / (np.sqrt(squares) + np.float32(EPSILON))
    theta /= max(np.linalg.norm(theta), np.float32(1e-7))


@njit(forceinline=True)
def _slot(row: Any, slots: Any, rows: Any, gradient: Any, pulls: Any, used: Any) -> Any:
    """How many slots are in use, once this row has one."""
    if slots[row] >= 0:
        return used
    slots[row], rows[used], pulls[used] = used, row, np.float32(0)
    for k in range(gradient.shape[1]):
        gradient[used, k] = np.float32(0)
    return used + 1


@njit(fastmath=FAST, forceinline=True)
def _distance(values: Any, one: Any, other: Any) -> Any:
    x, y, total = values[one], values[other], np.float32(0)
    for k in range(values.shape[1]):
        total += (x[k] - y[k]) * (x[k] - y[k])
    return total


@njit(fastmath=FAST, forceinline=True)
def _push(values: Any, gradient: Any, one: Any, other: Any, slot: Any, other_slot: Any, factor: Any) -> None:
    """The gradient of `factor / 2` times a squared distance."""
    x, y, dx, dy = values[one], values[other], gradient[slot], gradient[other_slot]
    for k in range(values.shape[1]):
        change = factor * (x[k] - y[k])
        dx[k] += change
        dy[k] -= change


@njit
def _proximity(
    values: Any, nodes: Any, steps: Any, first: Any, second: Any, weights: Any, other_first: Any, other_second: Any,
    margin: Any, slots: Any, rows: Any, gradient: Any, pulls: Any,
) -> Any:  # fmt: skip
    """Add the gradient of the proximity. Returns how many slots are used, and the loss."""
    used, loss, count = 0, 0.0, len(steps)
    for e in range(count):
        base = np.int64(steps[e]) * nodes
        i, j, m, n = base + first[e], base + second[e], base + other_first[e], base + other_second[e]
        excess = _distance(values, i, j) - _distance(values, m, n) + margin
        if excess <= 0:
            continue
        loss += np.float64(weights[e]) * excess
        used = _slot(i, slots, rows, gradient, pulls, used)
        used = _slot(j, slots, rows, gradient, pulls, used)
        used = _slot(m, slots, rows, gradient, pulls, used)
        used = _slot(n, slots, rows, gradient, pulls, used)
        factor = np.float32(2) * weights[e] / np.float32(count)
        _push(values, gradient, i, j, slots[i], slots[j], factor)
        _push(values, gradient, m, n, slots[m], slots[n], -factor)
    return used, loss / max(count, 1)


@njit(fastmath=FAST, forceinline=True)
def _product(values: Any, row: Any, theta: Any) -> Any:
    x, total = values[row], np.float32(0)
    for k in range(values.shape[1]):
        total += x[k] * theta[k]
    return total


@njit(fastmath=FAST, forceinline=True)
def _pull(values: Any, gradient: Any, theta: Any, theta_gradient: Any, row: Any, slot: Any, amount: Any) -> None:
    """The gradient of `amount` times the product of theta with a row, for both of them."""
    x, dx = values[row], gradient[slot]
    for k in range(values.shape[1]):
        dx[k] += amount * theta[k]
        theta_gradient[k] += np.float64(amount * x[k])


@njit
def _triads(
    values: Any, nodes: Any, steps: Any, centre: Any, a: Any, b: Any, to_a: Any, to_b: Any, coefficients: Any,
    theta: Any, beta: Any, used: Any, theta_gradient: Any, slots: Any, rows: Any, gradient: Any, pulls: Any,
) -> Any:  # fmt: skip
    """Add the gradient of the triads. Returns how many slots are used, and the loss."""
    width, loss, count = values.shape[1], 0.0, len(steps)
    for e in range(count):
        base = np.int64(steps[e]) * nodes
        i, j, m = base + centre[e], base + a[e], base + b[e]
        score = _product(values, i, theta)
        z = to_a[e] * (score - _product(values, j, theta)) + to_b[e] * (score - _product(values, m, theta))
        z = np.float64(z + theta[width])
        # log(1 + exp(-z)) and the sigmoid, without overflow.
        tail = np.exp(-abs(z))
        loss += coefficients[e] * z + np.log1p(tail) + max(-z, 0.0)
        sigmoid = 1 / (1 + tail) if z >= 0 else tail / (1 + tail)
        slope = np.float32(beta * (coefficients[e] - 1 + sigmoid) / count)
        used = _slot(i, slots, rows, gradient, pulls, used)
        used = _slot(j, slots, rows, gradient, pulls, used)
        used = _slot(m, slots, rows, gradient, pulls, used)
        pulls[slots[i]] += slope * (to_a[e] + to_b[e])
        pulls[slots[j]] -= slope * to_a[e]
        pulls[slots[m]] -= slope * to_b[e]
        theta_gradient[width] += slope
    if count > 0:
        for slot in range(used):
            if pulls[slot] != 0:
                _pull(values, gradient, theta, theta_gradient, rows[slot], slot, pulls[slot])
    return used, beta * loss / max(count, 1)


@njit
def _sweep(
    values: Any, squares: Any, steps: Any, nodes: Any, slots: Any, gradient: Any, factor: Any, rate: Any,
    apart: Any, low: Any, high: Any,
) -> None:  # fmt: skip
    """Smoothness, Adagrad and projection of all steps of some blocks of nodes. Leaves no slot in use."""
    width = values.shape[1]
    # The rows of the step before as they were, of each node of the block.
    before = np.zeros((_BLOCK, width), np.float32)
    still = np.zeros((1, width), np.float32)
    for block in range(low, high):
        first = block * _BLOCK
        count = min(_BLOCK, nodes - first)
        for step in range(steps):
            for i in range(count):
                row = np.int64(step) * nodes + first + i
                back, forth = factor if step > 0 else np.float32(0), factor if step + 1 < steps else np.float32(0)
                # At the last step any other row will do: its factor is zero.
                after, slot = row + nodes if step + 1 < steps else row - nodes if step > 0 else row, slots[row]
                if slot >= 0:
                    slots[row] = -1
                    distance = _move(values, squares, before, row, after, i, gradient, slot, back, forth, rate)
                else:
                    distance = _move(values, squares, before, row, after, i, still, 0, back, forth, rate)
                if step > 0:
                    apart[block] += distance


@njit(fastmath=FAST, forceinline=True, error_model="numpy")
def _move(
    values: Any, squares: Any, before: Any, row: Any, after: Any, i: Any, gradient: Any, slot: Any,
    back: Any, forth: Any, rate: Any,
) -> Any:  # fmt: skip
    """Move one row; the squared distance to `before[i]`, the row of the step before, which becomes this step's."""
    u, square, old, following, extra = values[row], squares[row], before[i], values[after], gradient[slot]
    apart = length = np.float32(0)
    for k in range(values.shape[1]):
        x = u[k]
        difference = x - old[k]
        apart += difference * difference
        slope = extra[k] + back * difference + forth * (x - following[k])
        total = square[k] + slope * slope
        moved = x - rate * slope / (np.sqrt(total) + np.float32(EPSILON))
        square[k], old[k], u[k] = total, x, moved
        length += moved * moved
    if length > 1:
        shrink = np.float32(1) / np.sqrt(length)
        for k in range(values.shape[1]):
            u[k] *= shrink
    return np.float64(apart)
