"""The equations of JODIE (Kumar et al., KDD 2019) on one kind of node, for a span of events at a time.

A node's state u, of length one, and its partner's v, both as they were before an event, with the time Δ since the
node's last event (standardised):

    project   û = u ⊙ (1 + W_p Δ + b_p)
    predict   the partner [v ; x_v] from [û ; v_prev ; x_u ; x_prev], prev its partner before
    update    u⁺ = RNN([v, Δ], u), scaled to length one

The published predict layer takes ids one-hot; features x take their place here. States of a span begin as constants;
within it gradients flow from update to update.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, mse_loss, normalize

from chronospike.methods.jodie_batches import BatchSpan, Schedule, Span, StepSpan

_TINY = 1e-12


@dataclass(frozen=True)
class Shape:
    """What the weights depend on.

    Attributes:
        features: width of a node's features.
        roles: 1, or 2 where sources and targets have a cell and an initial state each.
        partner_features: whether an update reads the features of the partner.
        join_features: whether the head reads the node's own features.
    """

    dimension: int
    features: int
    classes: int
    hidden: int
    roles: int
    partner_features: bool
    join_features: bool


class JODIEModule(nn.Module):
    """All weights, and the statistics of the times between events."""

    gap_mean: Tensor
    gap_std: Tensor

    def __init__(self, shape: Shape, gap_mean: float, gap_std: float) -> None:
        super().__init__()
        s, self.shape = shape, shape
        d, x = s.dimension, s.features
        inputs = d + 1 + (x if s.partner_features else 0)
        self.cells = nn.ModuleList(nn.RNNCell(inputs, d) for _ in range(s.roles))
        self.projection = nn.Linear(1, d)
        # One input: a normal distribution with the variance 1 / fan-in.
        nn.init.normal_(self.projection.weight)
        nn.init.normal_(self.projection.bias)
        self.initial = nn.Parameter(normalize(torch.rand(s.roles, d), dim=1))
        self.predict = nn.Linear(2 * (d + x), d + x)
        self.head = nn.Sequential(
            nn.Linear(d + (x if s.join_features else 0), s.hidden), nn.ReLU(), nn.Linear(s.hidden, s.classes)
        )
        self.register_buffer("gap_mean", torch.tensor(gap_mean, dtype=torch.float64))
        self.register_buffer("gap_std", torch.tensor(gap_std, dtype=torch.float64))

    def standardised(self, gap: Tensor) -> Tensor:
        """`[R, 1]` of times between events `[R]`."""
        return ((gap - self.gap_mean) / self.gap_std).float().unsqueeze(1)

    def states(self, rows: Tensor, fresh: Tensor) -> Tensor:
        """`rows [K, d]` of the table, zero for new nodes, which have the initial state of their role `fresh [K]`."""
        roles = torch.arange(self.shape.roles, device=fresh.device)
        share = (fresh.clamp(max=self.shape.roles - 1).unsqueeze(1) == roles).to(rows.dtype)
        return self._with_initial(rows, share)

    def _with_initial(self, rows: Tensor, share: Tensor) -> Tensor:
        return torch.addmm(rows, share, normalize(self.initial, dim=1))

    def project(self, states: Tensor, gap: Tensor) -> Tensor:
        """`[K, d]` states a time `gap [K]` later."""
        factor: Tensor = 1 + self.projection(self.standardised(gap))
        return states * factor

    def weights(self) -> Tensor:
        """`[roles, 2 d, d]` what an update takes of the node's own state and of its partner's."""
        d = self.shape.dimension
        return torch.stack([torch.cat([c.weight_hh, c.weight_ih[:, :d]], dim=1).T for c in self._cells])

    def constants(self, span: Span, partner_features: Tensor | None) -> Tensor:
        """`[R, d]` what an update takes of everything else."""
        d, inputs = self.shape.dimension, self.standardised(span.gap)
        if partner_features is not None:
            inputs = torch.cat([inputs, partner_features], dim=1)
        found = [inputs @ c.weight_ih[:, d:].T + (c.bias_ih + c.bias_hh) for c in self._cells]
        return found[0] if len(found) == 1 else torch.where(span.role.bool().unsqueeze(1), found[1], found[0])

    @property
    def _cells(self) -> list[nn.RNNCell]:
        return [cell for cell in self.cells if isinstance(cell, nn.RNNCell)]

    def partner_state(self, span: StepSpan, table: Tensor) -> Tensor:
        """`[A, d]` the mean of every active node's partners before the step."""
        share = span.partners_fresh
        share = share.sum(dim=1, keepdim=True) if self.shape.roles == 1 else share
        return self._with_initial(mean_rows(table, span), share)

    def logits(self, states: Tensor, features: Tensor | None) -> Tensor:
        """`[K, C]` of projected states and the features `[K, x]` that they are joined with, if they are."""
        found: Tensor = self.head(states if features is None else torch.cat([states, features], dim=1))
        return found


class Passed(NamedTuple):
    """A span gone through.

    Attributes:
        before, after, partner: `[R, d]` states around each update, and the partner's before it.
        final: `[A, d]` at the end.
    """

    before: Tensor
    after: Tensor
    partner: Tensor
    final: Tensor


def pass_span(module: JODIEModule, span: Span, table: Tensor, features: Tensor | None) -> Passed:
    """Update the states of a span.

    Args:
        table: `[N + 1, d]` states so far, zero for nodes that were not active yet, and for none; not changed.
        features: `[N + 1, x]` of the step, if updates read them.
    """
    start = module.states(table[span.nodes], span.fresh)
    seen = None if features is None else partner_features(span, features)
    constants, weights = module.constants(span, seen), module.weights()
    if isinstance(span, BatchSpan):
        found: Tensor = Unroll.apply(start, constants, weights, span)  # type: ignore[no-untyped-call]
        before, partner = found.index_select(0, span.reads[0]), found.detach().index_select(0, span.reads[1])
        return Passed(before, found[: len(constants)], partner, found.index_select(0, span.last))
    assert isinstance(span, StepSpan)
    partner = module.partner_state(span, table)
    taken = torch.cat([start, partner], dim=1)
    moved = [taken @ own for own in weights]
    chosen = moved[0] if len(moved) == 1 else torch.where(span.role.bool().unsqueeze(1), moved[1], moved[0])
    after = normalize((constants + chosen).tanh(), dim=1, eps=_TINY)
    return Passed(start, after, partner.detach(), after)


def partner_features(span: Span, features: Tensor) -> Tensor:
    """`[R, x]` features of the partner of each update, their mean where there are several."""
    return features[span.partner] if isinstance(span, BatchSpan) else mean_rows(features, span)


def mean_rows(table: Tensor, span: Span) -> Tensor:
    """`[A, …]` the mean row of every active node's partners."""
    assert isinstance(span, StepSpan)
    return embedding_bag(span.partners, table, span.offsets, mode="mean", include_last_offset=True)


def self_supervised_losses(module: JODIEModule, span: Span, passed: Passed, table: Tensor, x: Tensor) -> Tensor:
    """`[2]`: how far the predicted partner is from the real one, and the states from those before; mean squares.

    `x [N + 1, x]` are features from before the step. The state of the partner before is that at the beginning of the
    span, so that it knows of nothing later whatever the order of t-batches.
    """
    earlier = module.states(table[span.previous], span.previous_fresh)
    taken = [module.project(passed.before, span.gap), earlier, x[span.owner], x[span.previous]]
    target = torch.cat([passed.partner, partner_features(span, x)], dim=1)
    prediction = mse_loss(module.predict(torch.cat(taken, dim=1)), target)
    # Twice: of the node and of its partner, which are both among the updates.
    return torch.stack([prediction, 2 * mse_loss(passed.after, passed.before.detach())])


class Unroll(torch.autograd.Function):
    """The t-batches of a span one after the other, with a backward pass by hand.

    By itself autograd would make a gradient as large as all states for each t-batch. Within a t-batch no state is read
    twice, so that nothing is added to one place at once and results repeat on a GPU.
    """

    @staticmethod
    def forward(ctx: Any, start: Tensor, constants: Tensor, weights: Tensor, span: BatchSpan) -> Tensor:
        """`[R + A, d]` the states after each update, then `start [A, d]`, of `constants [R, d]` and
        `weights [roles, 2 d, d]`."""
        updates, d = constants.shape
        states = torch.cat([torch.empty_like(constants), start])
        lengths = constants.new_empty(updates, 1)
        own, other = span.reads
        roles = len(weights)
        for low, high in pairwise(span.batches):
            taken = torch.cat([states.index_select(0, own[low:high]), states.index_select(0, other[low:high])], dim=1)
            added = constants[low:high].view(roles, -1, d)
            moved = torch.baddbmm(added, taken.view(roles, -1, 2 * d), weights).view(-1, d).tanh_()
            length = torch.linalg.vector_norm(moved, dim=1, keepdim=True).clamp_(min=_TINY)
            torch.div(moved, length, out=states[low:high])
            lengths[low:high] = length
        ctx.save_for_backward(states, lengths, weights)
        ctx.span = span
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        states, lengths, weights = ctx.saved_tensors
        span, gradient = ctx.span, gradients[0].clone()
        own, other = span.reads
        roles, d = len(weights), states.shape[1]
        updates, back = len(lengths), weights.transpose(1, 2)
        for low, high in reversed(list(pairwise(span.batches))):
            grad_state, unit, length = gradient[low:high], states[low:high], lengths[low:high]
            grad_state.sub_(unit * (unit * grad_state).sum(dim=1, keepdim=True)).div_(length)
            grad_state.mul_(1 - (unit * length).square())
            taken = torch.bmm(grad_state.view(roles, -1, d), back).view(-1, 2 * d)
            gradient.index_add_(0, own[low:high], taken[:, :d])
            gradient.index_add_(0, other[low:high], taken[:, d:])
        changes, read = gradient[:updates], torch.cat([states[own], states[other]], dim=1)
        by_role = [changes] if roles == 1 else [changes * (span.role == r).unsqueeze(1) for r in range(roles)]
        return gradient[updates:], changes, torch.stack([read.T @ part for part in by_role]), None


@torch.no_grad()
def final_states(module: JODIEModule, schedule: Schedule, table: Tensor) -> Tensor:
    """`[N, d]` projected states of all nodes at the end, of the filled `table [N + 1, d]`."""
    return module.project(module.states(table[:-1], schedule.final_fresh), schedule.final_gap)
