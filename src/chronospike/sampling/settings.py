"""The settings of the hybrid sampler, checked, and what the backends derive from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from chronospike import rng
from chronospike.errors import InputError, nearest
from chronospike.sampling.tree import widths

HISTORIES = ("strict", "inclusive")
MIXES = ("bernoulli", "split")


@dataclass(frozen=True)
class SamplingSettings:
    """How neighbours are drawn.

    Attributes:
        fanouts: neighbours per node in each hop.
        p: share of the history among the neighbours; the rest comes from the snapshot.
        history: `"strict"`: edges before the step; `"inclusive"`: edges up to and at the step.
        mix: `"bernoulli"`: each slot takes the history with probability p; `"split"`: ⌊S·p⌋ of the S slots do,
            and at least one.
        replace: draw with replacement.
        seed: of all draws.
    """

    fanouts: tuple[int, ...] = (5, 2)
    p: float = 0.5
    history: str = "strict"
    mix: str = "bernoulli"
    replace: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.fanouts or not all(_is_whole(s) and s >= 1 for s in self.fanouts):
            raise InputError(f"fanouts {list(self.fanouts)}: give one whole number, at least 1, for each hop")
        if not isinstance(self.p, Real) or not 0 <= self.p <= 1:
            raise InputError(f"p {self.p!r} is outside 0..1: it is the share of neighbours from the history")
        check_name("history", self.history, HISTORIES)
        check_name("mix", self.mix, MIXES)
        if not _is_whole(self.seed):
            raise InputError(f"seed {self.seed!r} is not a whole number")

    @property
    def lag(self) -> int:
        """The history at step t is the row prefix of steps before t + lag."""
        return 1 if self.history == "inclusive" else 0

    @property
    def threshold(self) -> int:
        """`p` as `rng.chance_numba` takes it."""
        return rng.threshold(float(self.p))

    @property
    def history_slots(self) -> tuple[int, ...]:
        """For each hop the number of slots that take the history, or -1 where each slot draws its view."""
        if self.mix == "bernoulli":
            return (-1,) * len(self.fanouts)
        # 10 · 0.3 is 2.9999999999999996 in floating point, and three slots are meant.
        return tuple(max(math.floor(s * self.p + 1e-9), 1) for s in self.fanouts)

    @property
    def tree_size(self) -> int:
        """Positions per root: 1 + S1 + S1·S2 + …"""
        return sum(widths(self.fanouts))

    def key(self, epoch: int, purpose: str = "sampler") -> int:
        """The stream of all draws of one epoch; below it come the root's id, the step and the slot."""
        return rng.stream(self.seed, purpose, epoch)


def as_fanouts(fanouts: int | Iterable[int]) -> tuple[int, ...]:
    """`5` and `[5]` are one hop of five."""
    return tuple(fanouts) if isinstance(fanouts, Iterable) else (fanouts,)


def check_name(setting: str, value: str, choices: Sequence[str]) -> None:
    """Raise `InputError` with the choices, and the nearest one, unless `value` is one of them."""
    if value not in choices:
        raise InputError(f"{setting} {value!r} is not one of {', '.join(choices)}.{nearest(str(value), choices)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
