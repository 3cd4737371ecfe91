"""Neighbourhoods of a batch at every step: the hybrid sampler, its two backends, and batches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chronospike.sampling.hybrid import HybridSampler
    from chronospike.sampling.tree import NeighbourTree

__all__ = ["HybridSampler", "NeighbourTree"]

_HOMES = {"HybridSampler": "hybrid", "NeighbourTree": "tree"}


def __getattr__(name: str) -> Any:
    # torch and numba load only once a sampler is wanted.
    if name in _HOMES:
        return getattr(import_module(f"chronospike.sampling.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
