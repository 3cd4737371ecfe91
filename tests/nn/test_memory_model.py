"""Bytes of a DBLP batch, worked out by hand: 27 steps, fan-outs (5, 2), 128 inputs, hidden (128, 64), half precision.

A root has 16 positions, of which 6 have neighbours and 15 are some. Bytes a root and step: projections of layer 1
(6 + 15) 128 · 2 = 5,376, its states 6 · 128 · 4 = 3,072; of layer 2 (1 + 5) 64 · 2 = 768 and 64 · 4 = 256; nodes 64.
"""

from __future__ import annotations

from typing import Any

from chronospike.nn.memory_model import kernel_bytes
from chronospike.nn.model import Architecture

SUMS = 2 * 264 * 64 * 128 * 4


def of_dblp(roots: int, **values: Any) -> int:
    chosen = {"half": True, "dense": False, "training": True, **values}
    return kernel_bytes(Architecture(128, 10), 27, roots, (5, 2), **chosen)


def test_training_peaks_in_the_attention_of_the_second_layer_backward() -> None:
    # Kept of layer 1: projections, membranes, spikes. Of layer 2: projections and their gradients, those of the
    # neurons' inputs and of the spikes below.
    bytes_each = 5_376 + 2 * 3_072 + 2 * 768 + 256 + 3_072 + 64
    assert of_dblp(1024) == 27 * 1024 * bytes_each + SUMS


def test_inference_peaks_in_the_attention_of_the_first_layer() -> None:
    assert of_dblp(2048, training=False) == 27 * 2048 * (5_376 + 3_072 + 64)


def test_rows_that_are_gathered_are_held_beside_the_rest() -> None:
    assert of_dblp(1024, dense=True) - of_dblp(1024) == 27 * 1024 * 16 * 128 * 4


def test_single_precision_peaks_in_the_first_layer_where_projections_are_twice_as_large() -> None:
    bytes_each = 2 * (2 * 5_376) + 3_072 + 64
    assert of_dblp(1024, half=False) == 27 * 1024 * bytes_each + SUMS
