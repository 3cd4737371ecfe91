"""Features of all nodes, step by step, on the device of a task."""

from __future__ import annotations

import torch
from torch import Tensor

from chronospike.memory import available_bytes
from chronospike.training.node_features import NodeFeatures

# A step, the one before it and the last are needed at once.
LEAST_BLOCKS = 3


class FeatureBlocks:
    """The features of all nodes at a step, on a device, with a row of zeros for "no node" at the end."""

    def __init__(self, features: NodeFeatures, device: torch.device) -> None:
        self._features, self._device = features, device
        block = 4 * (features.num_nodes + 1) * features.width
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
        # All are kept where they fit easily.
        self._most = features.blocks if features.blocks * block <= free / 2 else LEAST_BLOCKS
        self._kept: dict[int, Tensor] = {}

    def at(self, step: int) -> Tensor:
        """`[N + 1, x]` of `step`."""
        step = 0 if self._features.static else step
        values = self._kept.pop(step, None)
        if values is None:
            while len(self._kept) >= self._most:
                # The one that was used least recently.
                del self._kept[next(iter(self._kept))]
            values = torch.zeros(self._features.num_nodes + 1, self._features.width, device=self._device)
            values[:-1] = torch.from_numpy(self._features.at(step))
        self._kept[step] = values
        return values

    def before(self, step: int) -> Tensor:
        """`[N + 1, x]` as they were before anything happened in `step`: zero before the first."""
        if step == 0 and not self._features.static:
            return torch.zeros(1, self._features.width, device=self._device).expand(self._features.num_nodes + 1, -1)
        return self.at(step if self._features.static else step - 1)
