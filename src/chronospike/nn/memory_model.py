"""The GPU memory of a batch with its kernels, in formulas: what `nn/kernels/` allocates and keeps.

Per layer, with n targets and M positions: the projections of targets and neighbours, `[T, n + M - B, C]` in half or
single precision, and states `[T, n, C]` in single precision: the neurons' inputs, their membranes, their spikes.
"""

from __future__ import annotations

from chronospike.nn.model import Architecture
from chronospike.sampling.tree import widths

# Sums that programs keep for the gradients of the attention's two weights: 264 programs of 64 x 128 each.
_WEIGHT_SUMS = 4 * 2 * 264 * 64 * 128
# Programs that do so for the readout, and nodes each takes at a time.
_READOUT_PROGRAMS, _READOUT_NODES = 128, 16


def kernel_bytes(
    a: Architecture, steps: int, roots: int, fanouts: tuple[int, ...], *, half: bool, dense: bool, training: bool
) -> int:
    """Most bytes alive at once for a batch of `roots`, without features, weights and their gradients.

    Args:
        dense: the features are gathered, in single precision, and not read where they are.
        training: forward and backward, and not the forward pass alone.
    """
    sizes = [steps * roots * width for width in widths(fanouts)]
    peaks, kept, before = [0], 0, 0
    for layer, channels in enumerate(a.hidden):
        there = sizes[: len(sizes) - layer]
        projections = (sum(there[:-1]) + sum(there[1:])) * channels * (2 if half else 4)
        states = sum(there[:-1]) * channels * 4
        # `before`, the inputs of the neurons below, outlive the attention that follows them.
        peaks += [kept + before + projections + states]
        if training:
            # Spikes, membranes and inputs, or on the way back the gradients of two of them; then the gradients of
            # projections and rows. All that this layer leaves is kept for the way back.
            peaks += [kept + projections + 3 * states, kept + 2 * projections + states + before + _WEIGHT_SUMS]
            kept += projections + 2 * states
        else:
            peaks += [before + 2 * states]
            kept = states
        before = states
    peaks += [kept + _readout_bytes(a, steps, roots, training)]
    # The sampled nodes are int32.
    return max(peaks) + 4 * sum(sizes) * (1 + (a.inputs if dense else 0))


def _known_bytes(a: Architecture, steps: int, roots: int) -> int:
    """What is read of the roots themselves: sequences, two layers on them, gates and states of the recurrent unit."""
    sequence = 2 * (a.met + 1) + 2 * a.hidden[-1] + 5 * a.sequence_channels if a.met else 0
    return 4 * roots * (steps * sequence + 2 * a.numbers + (a.head if a.met or a.numbers else 0))


def _readout_bytes(a: Architecture, steps: int, roots: int, training: bool) -> int:
    """Queries and pooled rows `[B, H, C]`, two views of z; backward their gradients, the spikes' and the sums."""
    c = a.hidden[-1]
    forward = 4 * roots * c * (2 * a.temporal_heads + 2) + _known_bytes(a, steps, roots)
    programs = min(_READOUT_PROGRAMS, -(-roots // _READOUT_NODES))
    sums = 4 * programs * c * (6 * c + 2 * a.feedforward + a.classes)
    return 2 * forward + 4 * steps * roots * c + sums if training else forward
