"""The edges of a graph as a list, to compare graphs by."""

from __future__ import annotations

from chronospike.data.csr import IntArray
from chronospike.data.graph import DynamicGraph


def edges_at(graph: DynamicGraph, step: int) -> tuple[IntArray, IntArray]:
    """(source, target) of the edges at `step`; an undirected edge once, smaller index first."""
    rows, steps, neighbours = graph.snapshot.entries()
    keep = steps == step if graph.directed else (steps == step) & (rows <= neighbours)
    return (neighbours[keep], rows[keep]) if graph.directed else (rows[keep], neighbours[keep])
